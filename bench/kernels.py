"""The kernels that benchmarks measure."""

from __future__ import annotations

import os
import subprocess
import sys

from tenonnx_cpu.jit import library
from tenonnx_cpu.jit.runtime import has_numba, jit_mode


def build_missing_kernels(*, quick: bool) -> None:
    """Have the library of kernels built that users would have, which takes minutes, once.

    Args:
        quick: Whether kernels are measured only where ``TENONNX_JIT`` says so.
    """
    if quick and "TENONNX_JIT" not in os.environ:
        return
    if jit_mode() == "0" or library.find() is not None or not has_numba():
        return
    subprocess.run([sys.executable, "-m", "tenonnx", "warmup"], check=False)
