"""A matrix of 8, 4 or 2 bits an element, as it is stored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tenonnx.operators import Array
from tenonnx_cuda.sources import SOURCE_TYPES


@dataclass(frozen=True)
class Matrix:
    """A stored matrix, where its scales and zeros are, and how its elements read.

    Attributes:
        weight: The bytes.
        scales: In the order that the steps say.
        zeros: Packed like the matrix (uint8), of the scales' type, or ``None`` for ``middle``.
        bits: Of an element.
        signed: Whether elements are two's complement.
        middle: What stands for zero without ``zeros``.
        rows: Its first dimension as stored.
        columns: Its second one.
        by_rows: Whether a row is what x is multiplied with: the matrix is [N, K].
        places: Elements of K that share a scale and the step to the next one, then of N.
        zero_row: Elements of a padded row of packed zeros; 0 if they are not padded.
        constant: No kernel writes it.
    """

    weight: Array
    scales: Array
    zeros: Array | None
    bits: int
    signed: int
    middle: int
    rows: int
    columns: int
    by_rows: bool
    places: tuple[int, int, int, int]
    zero_row: int = 0
    constant: bool = False

    @property
    def per_word(self) -> int:
        """Elements of 32 bits."""
        return 32 // self.bits

    def fits(self, x: Array) -> bool:
        """Return whether the kernels take the matrix: whole words, which lie at multiples of 4."""
        whole = self.columns % self.per_word == 0 and self.weight.data.ptr % 4 == 0
        given = (self.weight, self.scales, self.zeros)
        together = all(array is None or array.flags.c_contiguous for array in given)
        zeros = self.zeros is None or self.zeros.dtype in (np.uint8, self.scales.dtype)
        known = x.dtype in SOURCE_TYPES and self.scales.dtype in SOURCE_TYPES
        return bool(whole and together and zeros and known and x.size and self.weight.size)

    def macros(self, x: Array) -> dict[str, Any]:
        """Return what its kernels are compiled for."""
        packed = self.zeros is not None and self.zeros.dtype == np.uint8
        return {
            "T": SOURCE_TYPES[x.dtype],
            "S": SOURCE_TYPES[self.scales.dtype],
            "BITS": self.bits,
            "SIGNED": self.signed,
            "MIDDLE": self.middle,
            "ZERO": 0 if self.zeros is None else 1 if packed else 2,
        }
