"""Quantized weights of experts, dequantized one expert at a time."""

from __future__ import annotations

import dataclasses

import ml_dtypes

from tenonnx import Array, Namespace
from tenonnx_array.packed import levels, unpack


@dataclasses.dataclass(frozen=True)
class Quantized:
    """Matrices (experts, outputs, inputs) as they are stored.

    Attributes:
        xp: The array namespace.
        kind: int; fp8; fp4, wfp4afp8 and nvfp4, whose elements are float4_e2m1.
        bits: Bits of an integer.
        block_size: Inputs that share a scale, 0 for all; of fp8 also outputs.
        weights: Packed along the inputs, the first element in the low bits.
        scales: One per output or block, or None.
        zero_points: Packed as the weights are, along the outputs or the blocks; or None, which
            is the middle of the range.
        everywhere: One scale per expert for all its weights, or None.
    """

    xp: Namespace
    kind: str
    bits: int
    block_size: int
    weights: Array
    scales: Array | None
    zero_points: Array | None
    everywhere: Array | None

    def __call__(self, expert: int) -> Array:
        """Return an expert's matrix (outputs, inputs) as float32.

        Raises:
            ValueError: An unknown kind, or integers without scales.
        """
        readers = {"int": self._integers, "fp8": self._bytes}
        readers |= dict.fromkeys(("fp4", "wfp4afp8", "nvfp4"), self._nibbles)
        if self.kind not in readers:
            raise ValueError(f"expected quant_type of {', '.join(readers)}, found {self.kind!r}")
        matrix = readers[self.kind](expert)
        if self.everywhere is not None:
            matrix *= self.everywhere.reshape(-1)[expert]
        return matrix

    def _integers(self, expert: int) -> Array:
        if self.scales is None:
            raise ValueError("expected scales with quant_type='int', found none")
        matrix = levels(self.xp, self.weights[expert], self.bits)
        rows = matrix.shape[0]
        scales = self.scales[expert].reshape(rows, -1).astype(matrix.dtype)
        blocks = matrix.reshape(rows, scales.shape[1], -1)
        if self.zero_points is not None:
            packed = self.zero_points[expert]
            # Per output they are packed along the outputs, per block along the blocks.
            zeros = unpack(self.xp, packed, self.bits)
            zeros = zeros[:rows, None] if packed.ndim == 1 else zeros[:, : scales.shape[1]]
            blocks -= (zeros.astype(matrix.dtype) - 2.0 ** (self.bits - 1))[..., None]
        blocks *= scales[..., None]
        return blocks.reshape(rows, -1)

    def _bytes(self, expert: int) -> Array:
        matrix = self.weights[expert]
        if matrix.dtype == self.xp.uint8:
            matrix = matrix.view(ml_dtypes.float8_e4m3fn)
        matrix = matrix.astype(self.xp.float32)
        if self.block_size > 0 and self.scales is not None:
            scales = self.scales[expert].astype(self.xp.float32)
            for axis, length in enumerate(matrix.shape):
                scales = self.xp.repeat(scales, self.block_size, axis=axis)
                scales = scales[:length] if axis == 0 else scales[:, :length]
            matrix *= scales
        return matrix

    def _nibbles(self, expert: int) -> Array:
        codes = unpack(self.xp, self.weights[expert], 4)
        values = self.xp.arange(16, dtype=self.xp.uint8).view(ml_dtypes.float4_e2m1fn)
        matrix = self.xp.take(values.astype(self.xp.float32), codes)
        if self.scales is not None:
            scales = self.scales[expert].astype(self.xp.float32)
            blocks = matrix.reshape(*scales.shape, -1)
            blocks *= scales[..., None]
        return matrix
