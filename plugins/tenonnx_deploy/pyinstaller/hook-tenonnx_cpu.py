"""Collects the libraries of kernels, and leaves their compiler out, for PyInstaller."""

from PyInstaller.utils.hooks import collect_dynamic_libs

# No module imports them; their names are those of target CPUs.
binaries = collect_dynamic_libs("tenonnx_cpu", search_patterns=["*.so"])

# A frozen program has no interpreter that could compile.
excludedimports = ["numba", "llvmlite", "ziglang"]
