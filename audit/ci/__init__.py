"""What a pipeline asks: assertions, JUnit, what changed between two results, numbers for a tracker."""
