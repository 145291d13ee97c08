"""Products with blockwise quantised matrices."""
