"""The names by which plug-ins call kernels of their own for operators of their own.

Kernels are declared with names of ``tenonnx_cpu.jit.compiling`` and
``tenonnx_cpu.jit.threads.parallel_for``, which import numba; nothing here does.
"""

from __future__ import annotations

from tenonnx_cpu.buffers import contiguous, empty, frozen
from tenonnx_cpu.capture.capturable import Capturable
from tenonnx_cpu.capture.launch import Launch
from tenonnx_cpu.jit.runtime import JitKernel
from tenonnx_cpu.jit.threads.sharing import shared_out
from tenonnx_cpu.kernel_selection import Call, Site, specialize

__all__ = [
    "Call",
    "Capturable",
    "JitKernel",
    "Launch",
    "Site",
    "contiguous",
    "empty",
    "frozen",
    "shared_out",
    "specialize",
]
