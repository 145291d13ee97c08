"""Kernels that copy elements."""
