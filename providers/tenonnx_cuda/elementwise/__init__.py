"""Elementwise operators: kernels written for chains of them."""
