"""Products of float64 and of whole numbers of 4 and 8 bytes, if they are small.

Many products are numpy's: of float64 they are BLAS', whose calls take longer than small ones.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from tenonnx.by_name import cacheable
from tenonnx_cpu.buffers import contiguous, empty, frozen
from tenonnx_cpu.capture.launch import Launch
from tenonnx_cpu.elementwise.kernels.operations import FLOAT64, INT32, INT64
from tenonnx_cpu.elementwise.typed import first_of
from tenonnx_cpu.jit.runtime import JitKernel
from tenonnx_cpu.jit.threads.sharing import shared_out
from tenonnx_cpu.kernel_selection import Call, NDArray
from tenonnx_cpu.matmul.product import ONE_BATCH, batches

MULTIPLY_WIDE = JitKernel("matmul.wide", "multiply_wide")

# Types of elements by dtype; whole numbers without a sign wrap around to the same bits.
WIDE_CODES = {
    np.dtype(name): code
    for name, code in (("d", FLOAT64), ("i", INT32), ("I", INT32), ("l", INT64), ("L", INT64))
}

# Products up to which it is faster than numpy, whose BLAS takes float64, and integers as such.
MAX_WIDE_PRODUCTS = 1 << 17

# Products that are worth a second thread.
MIN_PRODUCTS_PER_THREAD = 1 << 16


@cacheable
def multiplied_wide(threads: int, plain: Call, a: NDArray, b: NDArray) -> Any:
    """Return a launch, or the product."""
    made = wide_launch(a, b, threads)
    return plain(a, b) if made is None else made


def wide_launch(a: NDArray, b: NDArray, threads: int) -> Launch | None:
    """Return what computes ``matmul(a, b)``; ``None`` if that is numpy's.

    Args:
        a: Of any strides, of 2 dimensions or more.
        b: Likewise, and of the same type.
        threads: How many to use at most.
    """
    run, element = MULTIPLY_WIDE.run, WIDE_CODES.get(a.dtype)
    if run is None or element is None or a.dtype != b.dtype or min(a.ndim, b.ndim) < 2:
        return None
    (rows, depth), columns = a.shape[-2:], b.shape[-1]
    if b.shape[-2] != depth or not a.size or not b.size or not a.flags.aligned:
        return None
    b = b if b.strides[-1] == b.itemsize and b.flags.aligned else contiguous(b)
    batch: tuple[int, ...] = ()
    offsets = ONE_BATCH
    if a.ndim > 2 or b.ndim > 2:
        found = batches(a.shape[:-2], a.strides[:-2], b.shape[:-2], b.strides[:-2])
        if found is None:
            return None
        batch, offsets = found
    work = len(offsets) * rows * depth * columns
    if work > MAX_WIDE_PRODUCTS:
        return None
    numbers, team = _numbers(
        element, len(offsets) * rows, rows, depth, columns, a.itemsize, a.strides[-2:],
        b.strides[-2], threads,
    )  # fmt: skip
    c = empty((*batch, rows, columns), a.dtype)
    arguments = first_of(a), first_of(b), c.reshape(-1).view(np.uint8), offsets, numbers, team
    return Launch(run, arguments, c)


@functools.lru_cache(maxsize=256)
def _numbers(
    element: int,
    count: int,
    rows: int,
    depth: int,
    columns: int,
    size: int,
    a_steps: tuple[int, int],
    b_row: int,
    threads: int,
) -> tuple[NDArray, int]:
    """Return the kernel's numbers, and how many threads are of use."""
    work = count * depth * columns
    grain, team = shared_out(count, work, MIN_PRODUCTS_PER_THREAD, threads)
    tasks = -(-count // grain)
    numbers = [element, rows, depth, columns, *a_steps, b_row, columns * size, grain, tasks]
    return frozen(np.array(numbers, np.int64)), team
