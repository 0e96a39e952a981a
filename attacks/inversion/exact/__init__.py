"""What equations determine of a target, with no search."""
