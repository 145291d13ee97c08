"""Products with blockwise quantized matrices."""
