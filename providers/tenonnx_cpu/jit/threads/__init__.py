"""The thread pool that kernels share."""
