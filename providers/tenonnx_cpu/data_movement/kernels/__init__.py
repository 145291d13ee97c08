"""Copies: slices, transposes, joins and picks of elements."""
