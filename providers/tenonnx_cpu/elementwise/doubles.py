"""Elementwise nodes of float64: launches, so that runs of them are replayed without Python."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from tenonnx_cpu.buffers import contiguous, empty
from tenonnx_cpu.capture.capturable import Capturable
from tenonnx_cpu.capture.launch import Launch
from tenonnx_cpu.elementwise.kernels import opcodes
from tenonnx_cpu.jit.runtime import JitKernel
from tenonnx_cpu.kernel_selection import Call, NDArray

DOUBLES = JitKernel("elementwise.doubles", "apply_doubles")

ENOUGH = 1 << 16
"""Elements that are worth a second thread."""

F64 = np.dtype(np.float64)


def doubles(code: int, threads: int, plain: Call) -> Call:
    """Returns what computes an operator of arrays of float64 and one shape."""
    DOUBLES.request()
    return Capturable(functools.partial(_call, code, threads, plain))


def _call(code: int, threads: int, plain: Call, x: NDArray, *others: NDArray) -> Any:
    run = DOUBLES.run
    takes = type(x) is np.ndarray and x.dtype == F64 and x.size > 0
    for other in others:
        takes = takes and type(other) is np.ndarray and (other.dtype, other.shape) == (F64, x.shape)
    if run is None or not takes or len(others) != (code >= opcodes.ADD):
        return plain(x, *others)
    y = empty(x.shape, F64)
    first, *rest = [contiguous(each).reshape(-1) for each in (x, *others)]
    second = rest[0] if rest else first
    used = threads if x.size >= ENOUGH else 1
    return Launch(run, (code, first, second, y.reshape(-1), used), y)
