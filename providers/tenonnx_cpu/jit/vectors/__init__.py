"""What kernels are made of: vectors, memory, elementary functions."""
