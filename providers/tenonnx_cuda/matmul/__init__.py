"""Products of matrices: cuBLAS, cuBLASLt, and a kernel for a few rows."""
