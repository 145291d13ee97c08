"""Products of matrices of bytes on a kernel of their own, exact in int32."""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import numpy as np

from tenonnx.by_name import cacheable
from tenonnx_cpu.buffers import contiguous, empty, frozen
from tenonnx_cpu.capture.launch import Launch
from tenonnx_cpu.conv.layout import fixed
from tenonnx_cpu.int8.kernels import MAX_GEMV_ROWS, SUMS_BYTES, TILE_WORDS, tile_words
from tenonnx_cpu.int8.quantized_values import BYTE_DTYPES
from tenonnx_cpu.jit.code.cpu import cpu
from tenonnx_cpu.jit.runtime import JitKernel
from tenonnx_cpu.jit.scratch import pieces, share_of, worker_shares
from tenonnx_cpu.kernel_selection import NDArray
from tenonnx_cpu.matmul.kernels import BYTE_ROOM
from tenonnx_cpu.matmul.product import SERIAL_ELEMENTS, SERIAL_PRODUCTS, batches
from tenonnx_cpu.quantized.matrix import chunk_codes

BYTE_GEMM = JitKernel("int8.gemm", "byte_gemm")

I32 = np.dtype(np.int32)
NO_WORDS, NO_NUMBERS = np.empty(0, np.int32), np.empty(0, np.float32)
ONE = frozen(np.ones(1, np.float32))
# Words of tiles that are as good as more words, of which some are zeros in a copy.
ENOUGH_WORDS = 12

ONE_MATRIX = frozen(np.zeros((1, 2), np.int64))
# The kernel's names of its results, by type.
RESULT_FORMS = {I32: 4, np.dtype(np.float32): 5, BYTE_DTYPES[0]: 1, BYTE_DTYPES[1]: 1}


@cacheable
class ByteFinish(NamedTuple):
    """The operations on sums: ``(sum + extra) * factor + summand``, clipped, and rounded if bytes.

    Attributes:
        dtype: int32 for the sums themselves, float32, uint8 or int8.
        factor: One float32, or one for every column.
        summand: One for every column, or none.
        extra: An int32 for every column, or none.
        low: The least result; of bytes, from the zero point on.
        high: The greatest.
        zero: The zero point.
    """

    dtype: np.dtype[Any] = I32
    factor: NDArray = ONE
    summand: NDArray = NO_NUMBERS
    extra: NDArray = NO_WORDS
    low: float = -np.inf
    high: float = np.inf
    zero: int = 0


PLAIN_SUMS = ByteFinish()


@cacheable
def column_zeros(zero: NDArray | None, b: NDArray) -> NDArray | None:
    """Return B's zero point, or one per column, from where its bytes are signed.

    ``None`` if it is neither.
    """
    middle = 128 if b.dtype == np.uint8 else 0
    if zero is None:
        return frozen(np.full(1, -middle, np.int32))
    if zero.size != 1 and (zero.size != b.shape[-1] or zero.shape[-1] != zero.size):
        return None
    return zero.reshape(-1).astype(np.int32) - np.int32(middle)


def _stacked(a: NDArray, b: NDArray) -> tuple[tuple[int, ...], NDArray] | None:
    """Return the shape of a product of stacks, and where its matrices begin.

    ``None`` if the stacks do not fit.
    """
    if b.ndim == 2:
        return (*a.shape[:-1], b.shape[1]), ONE_MATRIX
    steps = [math.prod(a.shape[place + 1 : -1]) for place in range(a.ndim - 2)]
    found = batches(a.shape[:-2], tuple(steps), b.shape[:-2], b.strides[:-2])
    if found is None:
        return None
    batch, offsets = found
    return (*batch, a.shape[-2], b.shape[-1]), offsets


def _are_matrices_of_bytes(a: NDArray, b: NDArray) -> bool:
    """Return whether the kernel can multiply two arrays by their dtypes and shapes."""
    if any(x.dtype not in BYTE_DTYPES or x.ndim < 2 or not x.size for x in (a, b)):
        return False
    return bool(a.shape[-1] == b.shape[-2])


def byte_launch(
    a: NDArray,
    a_zero: NDArray,
    b: NDArray,
    b_zeros: NDArray,
    threads: int,
    finish: ByteFinish = PLAIN_SUMS,
) -> Launch | None:
    """Return what computes ``matmul(a - a_zero, b - b_zeros)``, finished.

    Args:
        a: uint8 or int8, of 2 dimensions or more and any strides.
        a_zero: The zero point, one of the same type.
        b: uint8 or int8, of 2 dimensions or more and any strides.
        b_zeros: As ``column_zeros`` returns them.
        threads: How many to use at most.
        finish: The conversion of the sums.

    Returns:
        ``None`` if the kernel is not ready or does not take these arrays.
    """
    run = BYTE_GEMM.run
    if run is None or not _are_matrices_of_bytes(a, b):
        return None
    depth, columns = b.shape[-2:]
    b = b if b.ndim == 2 else readable(b)
    stacked = _stacked(a, b)
    if stacked is None:
        return None
    shape, offsets = stacked
    panel = chunk_codes(16)
    rows = contiguous(a).view(np.uint8).reshape(-1, depth)
    right = readable(b[(0,) * (b.ndim - 2)]).view(np.uint8)
    flip = 128 if a.dtype == np.int8 else 0
    fours = _fours(depth, len(rows) // len(offsets))
    copied = len(rows) if flip or depth < 4 * fours or b_zeros.any() else 0
    work = len(offsets) * depth * columns
    if work * (rows.size // depth // len(offsets)) <= SERIAL_PRODUCTS and work <= SERIAL_ELEMENTS:
        threads = 1
    room = 4 * panel * fours * (1 if right.strides[1] == 1 else 2)
    room = BYTE_ROOM + (max(room, SUMS_BYTES) if len(rows) <= MAX_GEMV_ROWS else room)
    room = share_of(room, np.uint8)
    copy, totals, memory = pieces(
        ((copied, 4 * fours), np.uint8),
        ((len(rows),), np.int32),
        worker_shares(room, threads, np.uint8),
    )
    result = empty(shape, finish.dtype)
    arguments = (
        rows, _places(fours), right, result.reshape(-1, columns).view(np.uint8), offsets,
        a_zero.view(np.uint8), b_zeros, finish.extra, finish.factor, finish.summand,
        flip, 128 if b.dtype == np.uint8 else 0, RESULT_FORMS[finish.dtype],
        finish.low, finish.high, finish.zero, copy, totals, memory, threads,
    )  # fmt: skip
    return Launch(run, arguments, result)


@functools.lru_cache(maxsize=256)
def _places(fours: int) -> NDArray:
    """Return where every four of adjacent bytes begin."""
    return fixed(np.arange(0, 4 * fours, 4))


def _fours(depth: int, rows: int) -> int:
    """Return the fours of a row's bytes, and more of zeros where tiles would be too small."""
    fours = -(-depth // 4)
    if not cpu().amx or rows <= MAX_GEMV_ROWS or tile_words(fours) >= min(fours, ENOUGH_WORDS):
        return fours
    tiles = -(-fours // TILE_WORDS)
    return tiles * -(-fours // tiles)


def readable(b: NDArray) -> NDArray:
    """Return B, or a copy, with columns or rows that the kernel reads where they are."""
    (depth, columns), (down, across) = b.shape[-2:], b.strides[-2:]
    is_panel = columns >= chunk_codes(16)
    if is_panel and (across == 1 or (down == 1 and depth % 4 == 0)):
        return b
    return b if across == 1 and down >= columns else contiguous(b)
