"""Gradients of all candidates at once, by hand where that is faster than automatic differentiation."""
