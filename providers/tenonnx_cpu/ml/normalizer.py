"""Normalizer on a JIT kernel."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from tenonnx.by_name import cacheable
from tenonnx_cpu.buffers import F32, F64, contiguous, empty, frozen
from tenonnx_cpu.capture.capturable import Capturable
from tenonnx_cpu.capture.launch import Launch, ahead
from tenonnx_cpu.elementwise.kernels.operations import (
    BOOL,
    DIV,
    EQUAL,
    FLOAT32,
    FLOAT64,
    MUL,
    WHERE,
)
from tenonnx_cpu.elementwise.typed import APPLY, DTYPES, OF_SIZE, code_of, launch
from tenonnx_cpu.jit.runtime import JitKernel
from tenonnx_cpu.jit.threads.sharing import shared_out
from tenonnx_cpu.kernel_selection import Call, NDArray, Site, specialize
from tenonnx_cpu.ml.kernels import L1, L2, MAX
from tenonnx_cpu.reduce.fold import FOLD, folded

NORMALIZER = JitKernel("ml.normalizer", "normalizer")

NORM_CODES = {"MAX": MAX, "L1": L1, "L2": L2}

ZERO, ONE = (frozen(np.array([number], np.float32)) for number in (0, 1))

NO_SQUARES = frozen(np.zeros((1, 0), np.float32))

# Elements that are worth a second thread: fewer than elsewhere, as a sum takes one after the
# other.
MIN_NORMALIZED_ELEMENTS_PER_THREAD = 1 << 13


@specialize("Normalizer", domain="ai.onnx.ml")
def specialize_normalizer(site: Site, plain: Call) -> Call | None:
    """Take rows of numbers."""
    APPLY.request()
    FOLD.request()
    norm = NORM_CODES[site.attribute("norm", "MAX")]
    NORMALIZER.request()
    return Capturable(functools.partial(_normalized, norm, site.threads, plain))


@cacheable
def _normalized(norm: int, threads: int, plain: Call, x: NDArray) -> Any:
    run, source = NORMALIZER.run, code_of(x.dtype)
    if run is None or source is None or not x.size or not x.ndim:
        return plain(x)
    squares = NO_SQUARES
    if x.dtype != F32:
        made = launch(FLOAT32, source, (x,), F32, threads)
        if norm == L2 and np.result_type(x.dtype, F32) != F32:
            found = _rounded_squares(x, source, threads)
            if found is None:
                return plain(x)
            squares = found
        if made is None:
            return plain(x)
        x = ahead(made)
    if norm == MAX:
        return _over_greatest(x, threads) or plain(x)
    y = empty(x.shape)
    rows = x.size // x.shape[-1]
    grain, team = shared_out(rows, x.size, MIN_NORMALIZED_ELEMENTS_PER_THREAD, threads)
    every = contiguous(x).reshape(rows, -1), squares.reshape(rows, -1) if squares.size else squares
    return Launch(run, (*every, norm, y.reshape(rows, -1), grain, team), y)


def _over_greatest(x: NDArray, threads: int) -> Launch | None:
    """Return a launch that divides rows by their greatest element, if it is not 0."""
    made = folded("ReduceMax", x, (-1,), True, threads)
    if made is None:
        return None
    greatest = ahead(made)
    made = launch(EQUAL, FLOAT32, (greatest, ZERO), DTYPES[BOOL], threads)
    if made is None:
        return None
    made = launch(WHERE, OF_SIZE[4], (ahead(made), ONE, greatest), F32, threads)
    return made and launch(DIV, FLOAT32, (x, ahead(made)), F32, threads)


def _rounded_squares(x: NDArray, source: int, threads: int) -> NDArray | None:
    """Return squares as float32, rounded once after their product."""
    real = x
    if x.dtype != F64:
        wide = launch(FLOAT64, source, (x,), F64, threads)
        if wide is None:
            return None
        real = ahead(wide)
    squares = launch(MUL, FLOAT64, (real, real), F64, threads)
    made = None if squares is None else launch(FLOAT32, FLOAT64, (ahead(squares),), F32, threads)
    return None if made is None else ahead(made)
