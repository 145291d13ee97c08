"""Leaves the compiler of kernels out, for PyInstaller."""

# A frozen program has no interpreter that could compile.
excludedimports = ["numba", "llvmlite"]
