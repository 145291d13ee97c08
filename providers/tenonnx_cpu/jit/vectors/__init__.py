"""Parts of kernels: vectors, memory, elementary functions."""
