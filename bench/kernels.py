"""The kernels that benchmarks measure."""

from __future__ import annotations

import subprocess
import sys

from tenonnx_cpu.jit import library, remarks
from tenonnx_cpu.jit.runtime import has_kernels, has_numba, jit_mode


def build_missing_kernels() -> None:
    """Have the library of kernels built that users would have, which takes minutes, once."""
    if jit_mode() == "0" or library.find() is not None or not has_numba():
        return
    subprocess.run([sys.executable, "-m", "tenonnx", "warmup"], check=False)


def without_kernels() -> str:
    """Return a remark that numpy computes, why, and how to mend it; empty if kernels do."""
    if has_kernels():
        return ""
    text, mend = remarks.kernels()[0]
    return f"WITHOUT KERNELS: {text}" + (f"; {mend}" if mend else "")
