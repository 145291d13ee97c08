"""Operators that only copy elements, or show them otherwise."""
