"""Reductions and the greatest elements."""
