"""Products of matrices of real numbers, and the tile that all products share."""
