"""Numbers as integers: ``x ≈ (q - zero_point) * scale``, a scale per block of numbers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import ml_dtypes
import numpy as np
import onnx_ir as ir

NDArray = np.ndarray[Any, np.dtype[Any]]

# Float32 numbers that are looked at at a time.
ROUNDED_PIECE_BYTES: Final = 4 << 20

# Element types in ONNX and numpy, by bits and signedness.
TYPES: Final = {
    (4, True): (ir.DataType.INT4, ml_dtypes.int4),
    (4, False): (ir.DataType.UINT4, ml_dtypes.uint4),
    (8, True): (ir.DataType.INT8, np.int8),
    (8, False): (ir.DataType.UINT8, np.uint8),
}


@dataclass(frozen=True)
class Integers:
    """The type of quantized numbers.

    Attributes:
        bits: 4 or 8.
        signed: Whether they are two's complement.
        symmetric: The zero point is the middle of the range: 0, or 128 (8) of unsigned ones.
    """

    bits: int
    signed: bool = True
    symmetric: bool = True

    @property
    def lowest(self) -> int:
        """The smallest integer."""
        return -(1 << (self.bits - 1)) if self.signed else 0

    @property
    def highest(self) -> int:
        """The greatest integer."""
        return self.lowest + (1 << self.bits) - 1

    @property
    def middle(self) -> int:
        """The zero point of a symmetric range."""
        return 0 if self.signed else 1 << (self.bits - 1)

    @property
    def dtype(self) -> ir.DataType:
        """The ONNX element type."""
        return TYPES[self.bits, self.signed][0]

    @property
    def numpy(self) -> Any:
        """The numpy element type."""
        return TYPES[self.bits, self.signed][1]

    def parameters(self, low: NDArray, high: NDArray, dtype: Any) -> tuple[NDArray, NDArray]:
        """Return scales, rounded to ``dtype``, and zero points for numbers in ``low .. high``.

        Zero is always an integer's value. A symmetric range of 8 bits leaves its lowest integer
        unused, as kernels expect; with 4 bits that would cost too much, so the scale is
        ``max|x| / 7.5``: nothing is further than half a scale from its integer.
        """
        low, high = np.minimum(low, 0), np.maximum(high, 0)
        if self.symmetric:
            steps = 127.0 if self.bits == 8 else (1 << (self.bits - 1)) - 0.5
            scale = np.maximum(-low, high) / steps
        else:
            scale = (high - low) / float(self.highest - self.lowest)
        scale = scale.astype(dtype)
        # A block of zeros, or of what the scale's type cannot tell from it.
        scale = np.where(scale > 0, scale, np.asarray(1, dtype))
        if self.symmetric:
            return scale, np.full(scale.shape, self.middle, np.int32)
        zero = self.lowest - np.rint(low / scale.astype(np.float32))
        return scale, np.clip(zero, self.lowest, self.highest).astype(np.int32)

    def round(self, x: NDArray, scale: NDArray, zero: NDArray) -> NDArray:
        """Return the integers nearest to float32 numbers, one to a byte; use up ``x``."""
        lowest = -127 if self.symmetric and self.signed and self.bits == 8 else self.lowest
        x /= scale.astype(np.float32)
        np.rint(x, out=x)
        if zero.any():
            x += zero.astype(np.float32)
        np.clip(x, lowest, self.highest, out=x)
        return x.astype(np.int8 if self.signed else np.uint8)


@dataclass(frozen=True)
class Blocks:
    """The division of a tensor by scales.

    Attributes:
        shape: The tensor's.
        axis: Along which numbers are grouped; a scale belongs to one group and, on every other
            axis, to one index.
        size: Numbers in a group; the last one may have fewer.
    """

    shape: tuple[int, ...]
    axis: int
    size: int

    @property
    def count(self) -> int:
        """Groups along the axis."""
        return -(-self.shape[self.axis] // self.size)

    @property
    def scales_shape(self) -> tuple[int, ...]:
        """The shape of the scales, with the axis."""
        return (*self.shape[: self.axis], self.count, *self.shape[self.axis + 1 :])

    def _flat(self, shape: tuple[int, ...]) -> tuple[int, int, int]:
        before, after = shape[: self.axis], shape[self.axis + 1 :]
        return int(np.prod(before)), shape[self.axis], int(np.prod(after))

    def pieces(self) -> Iterator[tuple[slice, slice]]:
        """Yield what to look at at a time: indices before the axis, and behind it."""
        outer, length, inner = self._flat(self.shape)
        most = max(1, ROUNDED_PIECE_BYTES // max(4 * length, 1))
        rows, columns = max(1, most // max(inner, 1)), min(max(inner, 1), most)
        for row in range(0, outer, rows):
            for column in range(0, inner, columns):
                yield slice(row, row + rows), slice(column, column + columns)

    def scales(self, x: NDArray, kind: Integers) -> tuple[NDArray, NDArray]:
        """Return the scales, in the dtype of ``x``, and the zero points of a tensor."""
        scale = np.empty(self._flat(self.scales_shape), x.dtype)
        zero = np.empty(scale.shape, np.int32)
        flat = x.reshape(self._flat(self.shape))
        for rows, columns in self.pieces():
            groups = self._groups(flat[rows, :, columns])
            found = kind.parameters(groups.min(axis=2), groups.max(axis=2), x.dtype)
            scale[rows, :, columns], zero[rows, :, columns] = found
        return scale.reshape(self.scales_shape), zero.reshape(self.scales_shape)

    def integers(self, x: NDArray, kind: Integers) -> NDArray:
        """Return a tensor's integers, one to a byte."""
        flat = x.reshape(self._flat(self.shape))
        out = np.empty(flat.shape, np.int8 if kind.signed else np.uint8)
        for rows, columns in self.pieces():
            part = out[rows, :, columns]
            groups = self._groups(flat[rows, :, columns])
            scale, zero = kind.parameters(groups.min(axis=2), groups.max(axis=2), x.dtype)
            q = kind.round(groups, scale[:, :, None], zero[:, :, None])
            part[...] = q.reshape(len(part), -1, part.shape[2])[:, : part.shape[1]]
        return out.reshape(self.shape)

    def _groups(self, part: NDArray) -> NDArray:
        """Return numbers as float32, [rows, groups, size, columns]; zeros fill the last group.

        Every range holds zero, so they change none.
        """
        rows, length, columns = part.shape
        groups = np.zeros((rows, self.count * self.size, columns), np.float32)
        groups[:, :length] = part
        return groups.reshape(rows, self.count, self.size, columns)


def packed(values: NDArray, bits: int) -> NDArray:
    """Return integers of one byte each as bytes, the first of two nibbles low, along the end."""
    bytes_of = values.view(np.uint8)
    if bits == 8:
        return bytes_of
    if bytes_of.shape[-1] % 2:
        padding = [(0, 0)] * (bytes_of.ndim - 1) + [(0, 1)]
        bytes_of = np.pad(bytes_of, padding)
    out: NDArray = bytes_of[..., 1::2] << 4
    out |= bytes_of[..., ::2] & 15
    return out
