"""Operators of classical machine learning: trees, support vectors, neighbors."""
