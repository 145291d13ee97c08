"""Products of matrices: cuBLAS, cuBLASLt, and kernels for matrices of 8, 4 and 2 bits."""
