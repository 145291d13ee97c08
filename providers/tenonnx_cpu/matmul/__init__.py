"""Products of matrices of real numbers."""
