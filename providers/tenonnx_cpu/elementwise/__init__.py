"""Elementwise operators, several in one pass."""
