"""Kernels of classical machine learning."""
