"""Matrix products on JIT kernels: the choice of the kernel, and its arguments."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tenonnx.by_name import cacheable
from tenonnx.graph.shape_checks import broadcast_shapes
from tenonnx_cpu.activation import NO_ACTIVATION, Activation
from tenonnx_cpu.buffers import empty, frozen, is_half, reshaped
from tenonnx_cpu.capture.launch import Launch, done
from tenonnx_cpu.jit.code.cpu import cpu
from tenonnx_cpu.jit.runtime import JitKernel
from tenonnx_cpu.jit.scratch import worker_floats
from tenonnx_cpu.kernel_selection import NDArray
from tenonnx_cpu.matmul.kernels import WORKSPACE

F32 = np.dtype(np.float32)
# Elements of B that kernels widen as they read them.
WIDENED_KINDS = ("f32", "f16", "bf16")

GEMM_OF_KIND = {kind: JitKernel("matmul.gemm", f"gemm_{kind}") for kind in WIDENED_KINDS}
GEMV = {kind: JitKernel("matmul.gemv", f"gemv_{kind}") for kind in WIDENED_KINDS}

# Rows of A up to which B is streamed, when its columns or its rows are adjacent.
FEW_ROWS, FEW_DOTS = 8, 16

# The same where panels of B, of float32, are two cache lines wide or more: they are read as fast,
# unless B has so many times more rows than columns.
FEW_WIDE, DEEPER = 5, 4

# Rows of A, of float32, up to which B of adjacent rows is, if a sum has many products and A stays
# in the second-level cache: B would else be turned for a few tiles. Of fewer registers, a tile has
# 3 rows only, and turning B pays sooner.
DOTS, DEEP, CACHED = 128 if cpu().registers == 32 else FEW_DOTS, 256, 1 << 17

# Columns up to which numpy multiplies rows, this many or more, in less time: a tile has more
# columns. Of one column always, of others as long as one thread has so many elements of A.
NARROW, TALL, ALONE = 4, 256, 1 << 17

# Products, and elements of B, up to which one thread is done before others have started.
SERIAL_PRODUCTS, SERIAL_ELEMENTS = 1 << 19, 1 << 17

NO_BIAS = np.empty(0, np.float32)
NO_RESIDUAL = np.empty((0, 0), np.float32)
ONE_BATCH = frozen(np.zeros((1, 2), np.int64))


@cacheable
@dataclass(frozen=True)
class Epilogue:
    """The operations on a product before it is written: ``activation(alpha * A @ B + ...)``."""

    alpha: float = 1.0
    activation: Activation = NO_ACTIVATION


NO_EPILOGUE = Epilogue()


def kind_of(dtype: np.dtype[Any]) -> str:
    """Return which of ``WIDENED_KINDS`` a dtype is; ``""`` if it is none."""
    if dtype == F32:
        return "f32"
    return ("f16" if dtype.char == "e" else "bf16") if is_half(dtype) else ""


def request(kind: str) -> None:
    """Have the kernels for B of a kind of elements compiled."""
    GEMM_OF_KIND[kind].request()
    GEMV[kind].request()


def product(a: NDArray, b: NDArray, threads: int, *more: Any, **named: Any) -> Any | None:
    """Return what ``product_launch`` computes from the same arguments; ``None`` as it does."""
    made = product_launch(a, b, threads, *more, **named)
    return None if made is None else done(made)


def product_launch(
    a: NDArray,
    b: NDArray,
    threads: int,
    bias: NDArray | None = None,
    residual: NDArray | None = None,
    epilogue: Epilogue = NO_EPILOGUE,
) -> Launch | None:
    """Return what computes ``activation(alpha * matmul(a, b) + bias + residual)`` as float32.

    Args:
        a: float32 of any strides, of 2 dimensions or more.
        b: float32, float16 or bfloat16, likewise.
        threads: How many to use at most.
        bias: float32, one for every column.
        residual: float32, of the result's shape.
        epilogue: What else to do.

    Returns:
        ``None`` if no kernel takes these arrays, or the one that does is not ready: empty,
        unaligned or of other types, or their shapes do not fit.
    """
    kind = kind_of(b.dtype)
    if not kind or a.dtype != F32 or a.ndim < 2 or b.ndim < 2:
        return None
    depth, columns = b.shape[-2:]
    if a.shape[-1] != depth or not (a.size and b.size and a.flags.aligned and b.flags.aligned):
        return None
    if b.ndim == 2:
        shape, offsets = (*a.shape[:-1], columns), ONE_BATCH
        left, right, rows = a if a.ndim == 2 else reshaped(a, (-1, depth)), b, a.size // depth
    else:
        stacked = batches(a.shape[:-2], a.strides[:-2], b.shape[:-2], b.strides[:-2])
        if stacked is None:
            return None
        (batch, offsets), rows = stacked, a.shape[-2]
        left, right = a[(0,) * (a.ndim - 2)], b[(0,) * (b.ndim - 2)]
        shape = (*batch, rows, columns)
    alone = columns == 1 or threads == 1 or rows * depth <= ALONE
    if alone and columns <= NARROW and rows >= TALL and b.ndim == 2 and kind == "f32":
        return None
    run = _choose(kind, rows, left, right)
    if run is None:
        return None
    if bias is not None and (bias.shape != (columns,) or not fits(bias)):
        return None
    if residual is not None and (residual.shape != shape or not fits(residual)):
        return None
    work = offsets.shape[0] * depth * columns
    if work * rows <= SERIAL_PRODUCTS and work <= SERIAL_ELEMENTS:
        threads = 1
    result = empty(shape)
    arguments = (
        left, right if kind == "f32" else right.view(np.uint16),
        result if result.ndim == 2 else result.reshape(-1, columns), offsets,
        NO_BIAS if bias is None else bias,
        NO_RESIDUAL if residual is None else residual.reshape(-1, columns),
        epilogue.alpha, *epilogue.activation,
        worker_floats(WORKSPACE, threads), threads,
    )  # fmt: skip
    return Launch(run, arguments, result)


def _choose(kind: str, rows: int, left: NDArray, right: NDArray) -> Callable[..., Any] | None:
    width, depth = right.itemsize, len(right)
    down, across = right.strides
    # The kernel asks in this order: where both are adjacent, it takes B by its lines.
    if across == width:
        wide = kind == "f32" and depth < DEEPER * right.shape[1] and cpu().lanes == 16
        few = rows <= (FEW_WIDE if wide else FEW_ROWS)
    elif down != width or left.strides[1] != 4:
        few = False
    else:
        cached = depth >= DEEP and rows * depth <= CACHED
        few = rows <= FEW_DOTS or (kind == "f32" and rows <= DOTS and cached)
    return GEMV[kind].run if few else GEMM_OF_KIND[kind].run


def fits(array: NDArray) -> bool:
    """Return whether an array is float32, adjacent and aligned."""
    flags = array.flags
    return array.dtype == F32 and flags.c_contiguous and flags.aligned


def batches(
    a_shape: tuple[int, ...],
    a_strides: tuple[int, ...],
    b_shape: tuple[int, ...],
    b_strides: tuple[int, ...],
) -> tuple[tuple[int, ...], NDArray] | None:
    """Return the shape that two stacks of matrices broadcast to, and where each pair lies.

    ``None`` if they do not broadcast.
    """
    try:
        shape = a_shape if a_shape == b_shape else broadcast_shapes(a_shape, b_shape)
    except ValueError:
        return None
    offsets = np.empty((math.prod(shape), 2), np.int64)
    offsets[:, 0] = _places(shape, a_shape, a_strides)
    offsets[:, 1] = _places(shape, b_shape, b_strides)
    return shape, frozen(offsets)


def _places(shape: tuple[int, ...], own: tuple[int, ...], strides: tuple[int, ...]) -> NDArray:
    """Return where each of an array's matrices lies, once it is broadcast to a shape."""
    missing = len(shape) - len(own)
    count, apart = 1, 0  # most stacks lie in a row
    for size, length, step in zip(shape[missing:], own, strides, strict=True):
        step = 0 if length == 1 else step
        if count > 1 and size > 1 and apart != size * step:
            break
        count, apart = count * size, apart if size == 1 else step
    else:
        row = np.arange(count) * apart
        return row if not missing else np.tile(row, math.prod(shape[:missing]))
    places = np.zeros(1, np.int64)
    for axis, size in enumerate(shape):
        spread = axis >= missing and own[axis - missing] > 1
        steps = np.arange(size) * (strides[axis - missing] if spread else 0)
        places = np.add.outer(places, steps).ravel()
    return places
