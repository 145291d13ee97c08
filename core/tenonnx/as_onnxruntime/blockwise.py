"""Quantizing weights block by block, which onnxruntime's tools call its inner module for.

A block is ``block_size`` rows of a column. Its scale maps its range to the integers: with a zero
point, from its least to its greatest element and zero; without, so that the element of greatest
magnitude becomes the lowest integer, the one that has no counterpart.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

__all__ = [
    "quantize_matmul_2bits",
    "quantize_matmul_4bits",
    "quantize_matmul_8bits",
    "quantize_qdq_matmul_4bits",
]

NDArray = np.ndarray[Any, np.dtype[Any]]


def quantize(blocks: NDArray, bits: int, symmetric: bool) -> tuple[NDArray, NDArray, NDArray]:
    """Return integers, scales and zero points of blocks along the last axis."""
    top = 2**bits - 1
    blocks = blocks.astype(np.float32)
    if symmetric:
        farthest = np.abs(blocks).argmax(-1, keepdims=True)
        scale = np.take_along_axis(blocks, farthest, -1) / np.float32(-(2 ** (bits - 1)))
        zero = np.full(scale.shape, 2 ** (bits - 1), np.float32)
    else:
        low = np.minimum(blocks.min(-1, keepdims=True), 0)
        scale = (np.maximum(blocks.max(-1, keepdims=True), 0) - low) / np.float32(top)
        zero = np.clip(np.round(-low / _divisor(scale)), 0, top)
    integers = np.clip(np.round(blocks / _divisor(scale)) + zero, 0, top).astype(np.uint8)
    return integers, scale[..., 0], zero[..., 0].astype(np.uint8)


def _divisor(scale: NDArray) -> NDArray:
    return np.where(scale == 0, np.float32(1), scale)


def pack(integers: NDArray, bits: int, rest: int = 0) -> NDArray:
    """Return integers along the last axis, several to a byte, the first in its low bits.

    Places that are left over get ``rest``.
    """
    count = 8 // bits
    short = -integers.shape[-1] % count
    integers = np.pad(integers, [(0, 0)] * (integers.ndim - 1) + [(0, short)], constant_values=rest)
    places = integers.reshape(*integers.shape[:-1], -1, count) << np.arange(0, 8, bits)
    packed: NDArray = np.bitwise_or.reduce(places.astype(np.uint8), -1)
    return packed


def _quantize_matmul(
    bits: int,
    packed: NDArray,
    weight: NDArray,
    scales: NDArray,
    zero_points: NDArray,
    block_size: int,
    columns: int,
    rows: int,
    is_symmetric: bool,
) -> None:
    """Fill the inputs of a ``MatMulNBits`` node; rows beyond the last one stay zero."""
    short = -rows % block_size
    padded = np.pad(weight[:rows].T, ((0, 0), (0, short)))
    blocks = padded.reshape(columns, -1, block_size)
    integers, scale, zero = quantize(blocks, bits, is_symmetric)
    integers.reshape(columns, -1)[:, rows:] = 0
    packed.reshape(columns, blocks.shape[1], -1)[:] = pack(integers, bits)
    scales.reshape(columns, -1)[:] = scale
    if not is_symmetric:
        zero_points.reshape(columns, -1)[:] = pack(zero, bits, 2 ** (bits - 1))


quantize_matmul_2bits = functools.partial(_quantize_matmul, 2)
quantize_matmul_4bits = functools.partial(_quantize_matmul, 4)
quantize_matmul_8bits = functools.partial(_quantize_matmul, 8)


def quantize_qdq_matmul_4bits(
    packed: NDArray,
    weight: NDArray,
    scales: NDArray,
    zero_points: NDArray,
    block_size: int,
    columns: int,
    rows: int,
    is_symmetric: bool,
) -> bool:
    """Fill the inputs of a ``DequantizeLinear`` node blocked along its first axis.

    Without zero points the integers are signed.
    """
    short = -rows % block_size
    padded = np.pad(weight[:rows], ((0, short), (0, 0)))
    blocks = padded.reshape(-1, block_size, columns).transpose(0, 2, 1)
    integers, scale, zero = quantize(blocks, 4, is_symmetric)
    by_row = integers.transpose(0, 2, 1).reshape(-1, columns)[:rows]
    if is_symmetric:
        by_row = (by_row - 8) & 0xF
    packed.reshape(-1)[:] = pack(by_row.reshape(-1), 4)
    scales.reshape(-1)[:] = scale.reshape(-1)
    if not is_symmetric:
        zero_points.reshape(-1)[:] = pack(zero.reshape(-1), 4)
    return is_symmetric
