"""Normalizations and Softmax: a block of threads for each row."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from tenonnx.operators import Array
from tenonnx_cuda.kernel_selection import Call, Site, Target, choose, same_element
from tenonnx_cuda.sources import is_aligned, pointer

STASH_FLOAT32 = 1

NORM: Final = ((256, 32), (1024, 16))
# Threads of a block, and elements of a row for which each of them has registers.
SOFTMAX: Final = ((256, 32), (1024, 32))

# Threads of a block, for rows that no block holds.
LONG_ROW_THREADS: Final = 1024

# Elements of a row that the kernels can count.
MAX_ROW_ELEMENTS: Final = 2**31 - 1


def width(length: int, *arrays: Array) -> int:
    """Return how many elements of a row are read at once: 16 bytes where all lie evenly."""
    wide = 16 // arrays[0].dtype.itemsize
    return wide if length % wide == 0 and is_aligned(*arrays) else 1


def kernel_variant(
    length: int, *arrays: Array | None, shares: Sequence[tuple[int, int]]
) -> tuple[str, tuple[int], dict[str, int]]:
    """Return the end of a kernel's name, its threads, and what it is compiled for.

    Args:
        length: The row's.
        arrays: What is read and written.
        shares: Threads, and what each of them may hold; for longer rows there is another kernel.
    """
    wide = width(length, *(array for array in arrays if array is not None))
    for most, share in shares:
        threads = min(most, -(-length // (32 * wide)) * 32)
        times = -(-length // (threads * wide))
        if times * wide <= share:
            return "", (threads,), {"WIDTH": wide, "HELD": times, "THREADS": threads}
    return "_long", (LONG_ROW_THREADS,), {"WIDTH": wide, "HELD": 1, "THREADS": LONG_ROW_THREADS}


@choose("Softmax", "LogSoftmax")
def softmax(site: Site, plain: Call) -> Call:
    """Softmax of the last axis, or before version 13 of all axes from one on."""
    flattens = site.version < 13
    axis = site.attribute("axis", 1 if flattens else -1)
    is_log = np.int32(site.node.op_type == "LogSoftmax")
    return functools.partial(_softmax, site.target, plain, axis, flattens, is_log)


def _softmax(
    target: Target, plain: Call, axis: int, flattens: bool, is_log: np.int32, x: Array
) -> Array:
    split = axis + x.ndim * (axis < 0)
    element = same_element(x)
    if element is None or not x.size or not (flattens or split == x.ndim - 1):
        return plain(x)
    length = math.prod(x.shape[split:])
    if length > MAX_ROW_ELEMENTS:
        return plain(x)
    x = target.xp.ascontiguousarray(x)
    y = target.xp.empty(x.shape, x.dtype)
    form, threads, macros = kernel_variant(length, x, y, shares=SOFTMAX)
    launch = target.kernel("norm/softmax", f"softmax{form}", T=element, **macros)
    launch((x.size // length,), threads, (x, y, np.int32(length), is_log))
    return y


def normalized(
    target: Target,
    x: Array,
    scale: Array,
    bias: Array | None,
    *,
    axis: int,
    epsilon: float,
    rms: bool,
    skip: Array | None = None,
    extra: Array | None = None,
    statistics: bool = False,
    total: bool = False,
) -> tuple[Array, Array | None, Array | None, Array | None] | None:
    """Return y, means, 1 / deviations and sums; ``None`` where the kernel does not fit.

    Args:
        target: The device.
        x: [..., n]; the axes from ``axis`` on are one row.
        scale: As many elements as a row has.
        bias: As many elements as a row has.
        axis: The first axis of a row, not negative.
        epsilon: Added to the variance.
        rms: Leave the mean where it is.
        skip: Added to x first; of its shape.
        extra: Added to every row first.
        statistics: Return means and deviations.
        total: Return the sum of x, skip and extra.
    """
    xp, length = target.xp, math.prod(x.shape[axis:])
    element = same_element(x, scale, bias, skip, extra)
    of_a_row = all(a is None or a.size == length for a in (scale, bias, extra))
    if element is None or not x.size or length > MAX_ROW_ELEMENTS or not of_a_row:
        return None
    if skip is not None and skip.shape != x.shape:
        return None
    given = [None if a is None else xp.ascontiguousarray(a) for a in (x, skip, extra, scale, bias)]
    rows = x.size // length
    y = xp.empty(x.shape, x.dtype)
    summed = xp.empty(x.shape, x.dtype) if total else None
    shape = (*x.shape[:axis], *[1] * (x.ndim - axis))
    mean, deviation = (xp.empty(shape, np.float32) if statistics else None for _ in range(2))
    form, threads, macros = kernel_variant(length, *given, y, summed, shares=NORM)
    outs = [pointer(a) for a in (y, summed, mean, deviation)]
    numbers = (np.int32(length), np.float32(epsilon), np.int32(rms))
    launch = target.kernel("norm/norm", f"normalize{form}", T=element, **macros)
    launch((rows,), threads, (*map(pointer, given), *outs, *numbers))
    return y, mean, deviation, summed


@choose("LayerNormalization", "RMSNormalization")
def normalization(site: Site, plain: Call) -> Call | None:
    """LayerNormalization with statistics in float32, and RMSNormalization with sums in it."""
    axis, epsilon = site.attribute("axis", -1), site.attribute("epsilon", 1e-5)
    rms = site.node.op_type == "RMSNormalization"
    statistics = any(value.uses() or value.is_graph_output() for value in site.node.outputs[1:])
    if site.attribute("stash_type", STASH_FLOAT32) != STASH_FLOAT32:
        return None
    return functools.partial(_of_rows, site.target, plain, axis, epsilon, rms, statistics)


def _of_rows(
    target: Target,
    plain: Call,
    axis: int,
    epsilon: float,
    rms: bool,
    statistics: bool,
    x: Array,
    scale: Array,
    *bias: Array | None,
) -> Any:
    how = {"axis": axis % x.ndim, "epsilon": epsilon, "statistics": statistics}
    if tuple(scale.shape) == tuple(x.shape[how["axis"] :]):
        found = normalized(target, x, scale, *(bias or (None,)), rms=rms, **how)
        if found is not None:
            return found[0] if rms else found[:3]
    return plain(x, scale, *bias)


@choose("SkipLayerNormalization", "SkipSimplifiedLayerNormalization", domain="com.microsoft")
def skip_normalization(site: Site, plain: Call) -> Call:
    """A residual sum and its normalization, without writing the sum unless it is wanted."""
    epsilon, rms = site.attribute("epsilon", 1e-12), "Simplified" in site.node.op_type
    wanted = [value.uses() or value.is_graph_output() for value in site.node.outputs]
    statistics, total = any(wanted[1:3]), any(wanted[3:4])
    return functools.partial(_of_sums, site.target, plain, epsilon, rms, statistics, total)


def _of_sums(
    target: Target,
    plain: Call,
    epsilon: float,
    rms: bool,
    statistics: bool,
    total: bool,
    x: Array,
    skip: Array,
    gamma: Array,
    *more: Array | None,
) -> Any:
    beta, extra = (None, *more, None)[:2] if rms else (*more, None, None)[:2]
    found = normalized(
        target,
        x,
        gamma,
        beta,
        axis=x.ndim - 1,
        epsilon=epsilon,
        rms=rms,
        skip=skip,
        extra=extra,
        statistics=statistics,
        total=total,
    )
    return plain(x, skip, gamma, *more) if found is None else found
