"""Kernels that go over rows."""
