"""Softmax and normalization of rows: each stays in the cache while it is gone over."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx_cpu.elementwise.kernels.operations import FLOAT32, FLOAT64
from tenonnx_cpu.elementwise.kernels.typed_rows import apply_row
from tenonnx_cpu.jit.compiling import (
    Contract,
    In,
    Out,
    f64,
    helper,
    i64,
    inlined,
    kernel,
    size,
    u8,
)
from tenonnx_cpu.jit.threads.parallel_for import parallel
from tenonnx_cpu.jit.vectors import vmath, vmath64
from tenonnx_cpu.jit.vectors.reductions import exponentials, greatest
from tenonnx_cpu.jit.vectors.views import elements, floats, on_stack
from tenonnx_cpu.norm.kernels import SPAN
from tenonnx_cpu.norm.kernels.softmax_columns import less, softmax_columns
from tenonnx_cpu.reduce.kernels import GREATEST
from tenonnx_cpu.reduce.kernels.row_reductions import reduce_row

F = np.float32


@helper
def softmax_row(x: Any, y: Any) -> None:
    """Write the softmax of ``x`` into ``y``, which may be ``x``."""
    factor = F(1) / exponentials(x, y, greatest(x))
    for i in range(y.size):
        y[i] *= factor


@inlined
def softmax_line(x: Any, y: Any, logarithm: Any) -> None:
    """Write the softmax of ``x`` into ``y``, or its logarithm."""
    if logarithm:
        top = greatest(x)
        rest = F(np.log(np.float64(exponentials(x, y, top))))
        for i in range(y.size):
            y[i] = less(x[i], top, rest)
    else:
        softmax_row(x, y)


@helper
def softmax_doubles(x: Any, y: Any, logarithm: Any) -> None:
    """Do the same of float64."""
    top = on_stack(1, np.float64)
    reduce_row(
        GREATEST, FLOAT64, x.ctypes.data, 8, x.size, 1, 0, 1, 0, top.ctypes.data, i64(1)
    )  # fmt: skip
    total = 0.0
    for i in range(y.size):
        y[i] = vmath64.exp(x[i] - top[0])
    for i in range(y.size):
        total += y[i]
    if logarithm:
        rest = np.log(total)
        for i in range(y.size):
            y[i] = less(x[i], top[0], rest)
    else:
        for i in range(y.size):
            y[i] /= total


@parallel
def softmax_units(arguments: Any, task: Any, worker: Any) -> None:
    """Do some rows, or pieces of lines of columns."""
    x, y, size, logarithm, grain = arguments
    outer, count, inner = x.shape[0], x.shape[1], x.shape[2] // size
    pieces = -(-inner // SPAN)
    for unit in range(task * grain, min(outer * pieces, (task + 1) * grain)):
        left, step = unit % pieces * SPAN, x.shape[2]
        start = unit // pieces * count * step + size * left
        given, to, width = x.ctypes.data + start, y.ctypes.data + start, min(SPAN, inner - left)
        if inner > 1 and size == 8:
            softmax_columns(given, to, width, count, step, logarithm, vmath64.exp, np.float64)
        elif inner > 1:
            softmax_columns(given, to, width, count, step, logarithm, vmath.exp, np.float32)
        elif size == 8:
            line, out = elements(given, count, np.float64), elements(to, count, np.float64)
            softmax_doubles(line, out, logarithm)
        else:
            softmax_line(floats(given, count), floats(to, count), logarithm)


@kernel(
    (In(u8, 3), Out(u8, 3), size, size, size, size),
    Contract(launch="y is as x, whose axes have elements"),
)
def softmax(x, y, itemsize, logarithm, grain, threads):  # type: ignore[no-untyped-def] # the signature has them
    """Write the softmax along the middle axis, or its logarithm.

    Args:
        x: The bytes of the elements.
        y: Those of the results.
        itemsize: 4 for float32, 8 for float64.
        logarithm: Whether that is wanted.
        grain: Rows of a task, or pieces of ``SPAN`` columns if the last axis has some elements.
        threads: How many to use.
    """
    units = x.shape[0] * -(-x.shape[2] // (itemsize * SPAN))
    softmax_units((x, y, itemsize, logarithm, grain), -(-units // grain), threads)


@inlined
def normalize(
    x: Any, scale: Any, bias: Any, epsilon: Any, centered: Any, y: Any, dtype: Any
) -> None:
    """Write a row normalized by its deviation, or root mean square, into ``y`` (maybe ``x``)."""
    mean, rest = dtype(0), dtype(0)
    if centered:
        for i in range(x.size):
            mean += x[i]
        mean /= dtype(x.size)
    square = dtype(0)
    for i in range(x.size):
        d = x[i] - mean
        square += d * d
        rest += d
    # What the mean was rounded by: an element close to the mean has not much more than that left.
    rest = rest / dtype(x.size) if centered else dtype(0)
    # Once in a row, and each of its elements has what this is off by.
    variance = np.float64(square) / np.float64(x.size) - np.float64(rest) * np.float64(rest)
    variance = np.float64(0) if variance < 0.0 else variance
    factor = dtype(1.0 / np.sqrt(variance + epsilon))
    if bias.size:
        for i in range(x.size):
            y[i] = less(x[i], mean, rest) * factor * scale[i] + bias[i]
    else:
        for i in range(x.size):
            y[i] = less(x[i], mean, rest) * factor * scale[i]


@helper
def normalize_row(arguments: Any, row: Any, dtype: Any, size: Any) -> None:
    """Do a row of one type."""
    x, other, scale, bias, epsilon, centered, y, total = arguments
    width, start = x.shape[1] // size, row * x.shape[1]
    gain = elements(scale.ctypes.data, width, dtype)
    shift = elements(bias.ctypes.data, bias.size // size, dtype)
    line = elements(x.ctypes.data + start, width, dtype)
    out = elements(y.ctypes.data + start, width, dtype)
    if other.size:
        summand = elements(other.ctypes.data + start, width, dtype)
        both = elements(total.ctypes.data + start, width, dtype)
        for i in range(width):
            both[i] = line[i] + summand[i]
        line = both
    normalize(line, gain, shift, epsilon, centered, out, dtype)


@helper
def widen(x: Any, start: Any, count: Any, element: Any, to: Any) -> Any:
    """Write 16-bit floats as float32 from an address on, and return these."""
    apply_row(FLOAT32, element, x.ctypes.data + start, 2, 0, 0, 0, 0, to, count)
    return floats(to, count)


@helper
def narrow(x: Any, y: Any, start: Any, element: Any) -> None:
    """Round float32 to 16-bit floats."""
    apply_row(element, FLOAT32, x.ctypes.data, 4, 0, 0, 0, 0, y.ctypes.data + start, x.size)


@helper
def normalize_halves(arguments: Any, first: Any, stop: Any, element: Any, memory: Any) -> None:
    """Do rows of 16-bit floats, a row's as float32."""
    x, other, scale, bias, epsilon, centered, y, total = arguments
    width = x.shape[1] // 2
    gain = widen(scale, 0, width, element, memory)
    shift = widen(bias, 0, bias.size // 2, element, memory + 4 * width)
    for row in range(first, stop):
        start = row * x.shape[1]
        line = widen(x, start, width, element, memory + 8 * width)
        if other.size:
            summand = widen(other, start, width, element, memory + 12 * width)
            for i in range(width):
                line[i] += summand[i]
            narrow(line, total, start, element)
        normalize(line, gain, shift, epsilon, centered, line, np.float32)
        narrow(line, y, start, element)


@parallel
def normalize_rows(arguments: Any, task: Any, worker: Any) -> None:
    """Do some rows."""
    given, wide, element, memory, share, grain = arguments
    first, stop = task * grain, min(given[0].shape[0], (task + 1) * grain)
    if element != FLOAT32 and not wide:
        normalize_halves(given, first, stop, element, memory + share * worker)
        return
    for row in range(first, stop):
        if wide:
            normalize_row(given, row, np.float64, 8)
        else:
            normalize_row(given, row, np.float32, 4)


@kernel(
    (
        (In(u8, 2), In(u8, 2), In(u8, 1), In(u8, 1), f64, size, Out(u8, 2), Out(u8, 2)),
        size, Out(u8, 1), size, size,
    ),
    Contract(launch="scale and bias have a number per normalized element, of one type"),
)  # fmt: skip
def normalize_all(given, element, memory, grain, threads):  # type: ignore[no-untyped-def] # the signature has them
    """Normalize the rows of ``x``, or of ``x + other``.

    Args:
        given: The bytes of the rows ``x``; what is added first, or of no size; what the columns are
            multiplied by; what is added to them, or of no size; what is added to the mean square;
            whether the mean is subtracted, as of layer normalization; the result; and
            ``x + other``, if there is such.
        element: The elements' type, as of ``elementwise.operations``.
        memory: Of each thread four rows of float32, if elements are 16-bit floats.
        grain: Rows in a task.
        threads: How many threads to use.
    """
    wide, share = element == FLOAT64, memory.size // threads
    arguments = (given, wide, element, memory.ctypes.data, share, grain)
    normalize_rows(arguments, -(-given[0].shape[0] // grain), threads)
