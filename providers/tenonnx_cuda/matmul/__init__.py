"""Products of matrices: cuBLAS, and cuBLASLt."""
