"""The crew of threads that kernels share."""
