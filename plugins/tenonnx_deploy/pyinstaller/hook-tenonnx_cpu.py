"""PyInstaller's hook for the modules of kernels, which leaves their compiler out."""

# A frozen program has no interpreter that could compile.
excludedimports = ["numba", "llvmlite", "ziglang"]
