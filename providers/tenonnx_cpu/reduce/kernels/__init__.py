"""Reductions and the greatest elements of rows."""
