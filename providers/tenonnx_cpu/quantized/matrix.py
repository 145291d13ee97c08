"""Blockwise quantized matrices as they are stored, and which kernels they fit."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from tenonnx.by_name import cacheable
from tenonnx_cpu.jit.runtime import has_kernels
from tenonnx_cpu.kernel_selection import NDArray

NO_ZEROS = np.empty(0, np.uint8)
# Bytes that invert the highest bit of every code: signed ones become unsigned.
FLIP = {2: 0xAA, 4: 0x88, 8: 0x80}


@cacheable
@dataclass(frozen=True)
class Quantized:
    """A matrix of ``depth`` rows and ``columns``: ``(codes - zeros) * scales``.

    Attributes:
        codes: The codes' bytes, flat, the first code in a byte's low bits. Columns one after the
            other, each of whole blocks (MatMulNBits), or rows one after the other (a constant
            of (depth, columns) for DequantizeLinear).
        scales: float32, ``(columns, blocks)`` or ``(blocks, columns)`` likewise.
        zeros: Zero points, packed like the codes with scales' shape, every line of whole bytes;
            ``None``: ``zero``.
        bits: 2, 4 or 8.
        depth: Rows.
        columns: Columns.
        block: Rows that have a scale in common: a multiple of 16, or ``depth`` and more.
        by_column: Columns one after the other.
        signed: Codes and zero points are two's complement.
        zero: The zero point where there are no zero points: 8 for MatMulNBits with 4 bits.
    """

    codes: NDArray
    scales: NDArray
    zeros: NDArray | None
    bits: int
    depth: int
    columns: int
    block: int
    by_column: bool
    signed: bool = False
    zero: int = 0

    def __post_init__(self) -> None:
        """Refuse what does not fit together.

        Raises:
            ValueError: Sizes or shapes disagree, or codes do not fill whole bytes.
        """
        blocks = -(-self.depth // self.block)
        lines = (self.columns, blocks) if self.by_column else (blocks, self.columns)
        if self.bits not in FLIP:
            raise ValueError(f"expected codes of 2, 4 or 8 bits, found {self.bits}")
        if self.scales.shape != lines:
            raise ValueError(f"expected scales of shape {lines}, found {self.scales.shape}")
        if self.block % 16 and self.block < self.depth:
            raise ValueError(f"expected blocks of a multiple of 16, found {self.block}")
        if not self.by_column and self.columns * self.bits % 8:
            raise ValueError(f"{self.columns} codes of {self.bits} bits end inside a byte")
        count = self.columns * self.code_line if self.by_column else self.depth * self.code_line
        if self.codes.size != count:
            raise ValueError(f"expected {count} bytes of codes, found {self.codes.size}")
        if self.zeros is not None and self.zeros.size * 8 != lines[0] * self.zero_line * self.bits:
            raise ValueError(f"expected zero points for {lines}, found {self.zeros.size} bytes")

    @property
    def code_line(self) -> int:
        """Bytes from one column, or row, of codes to the next."""
        if not self.by_column:
            return self.columns * self.bits // 8
        return -(-self.depth // self.block) * self.block * self.bits // 8

    @property
    def zero_line(self) -> int:
        """Codes from one line of zero points to the next."""
        each = 8 // self.bits
        return -(-int(self.scales.shape[1]) // each) * each

    @property
    def sums(self) -> int:
        """The number of a row's sums of blocks that products need: zero points are times these."""
        return 0 if self.zeros is None else int(self.scales.shape[1])

    @property
    def is_centred(self) -> bool:
        """Whether every code less its zero point fits as many bits."""
        return self.zeros is None and self.zero == (0 if self.signed else 1 << self.bits - 1)

    @functools.cached_property
    def arguments(self) -> tuple[Any, ...]:
        """The arguments that every kernel takes: ``jit.quantized.matrix.WEIGHTS``."""
        half = 1 << self.bits - 1
        return (
            self.codes,
            self.scales,
            NO_ZEROS if self.zeros is None else self.zeros.reshape(-1),
            self.by_column,
            self.code_line,
            self.zero_line,
            FLIP[self.bits] if self.signed else 0,
            self.zero + half if self.signed else self.zero,
            self.block,
        )

    @functools.cached_property
    def group_of_chunk(self) -> int:
        """Elements of activations that get a scale in common where chunks of codes are read.

        0 if chunks do not fit the matrix.
        """
        chunk = chunk_codes(self.bits)
        if not self.by_column or not chunk or self.depth % chunk:
            return 0
        group = min(self.block, chunk)
        fits = group & (group - 1) == 0 and group * self.bits >= 64 and self.block % group == 0
        return group if fits and self.depth % self.block == 0 else 0

    @functools.cached_property
    def fits_reals(self) -> bool:
        """Whether the columns are whole chunks of the kernel for activations as they are."""
        lanes, each = chunk_codes(32), 8 // self.bits
        if not self.by_column or not lanes or self.depth % (lanes * each):
            return False
        if self.block >= self.depth or self.block % (lanes * each) == 0:
            return True
        return self.block // each in (lanes // 2, lanes // 4) and self.depth % self.block == 0

    @functools.cached_property
    def group_of_lines(self) -> int:
        """Elements of activations that get a scale in common where codes are summed row by row.

        0 if the matrix is narrower than a panel, or its groups would be too short.
        """
        panel = chunk_codes(self.bits if self.bits > 2 else 4)
        if self.by_column or not panel or self.columns < panel:
            return 0
        common = math.gcd(self.block, self.depth) if self.block < self.depth else self.depth
        return next(group for group in (128, 64, 32, 16, 1) if common % group == 0) // 16 * 16

    @functools.cached_property
    def group_of_words(self) -> int:
        """Elements of activations that get a scale in common where codes become bytes.

        0 if the matrix does not consist of whole panels of them.
        """
        panel = chunk_codes(16)
        if not panel or self.columns % panel or self.depth % 16:
            return 0
        if self.bits == 8 and not self.is_centred:
            return 0
        common = math.gcd(self.block, self.depth) if self.block < self.depth else self.depth
        return next(group for group in (128, 64, 32, 16, 1) if common % group == 0) // 16 * 16


@functools.cache
def chunk_codes(bits: int) -> int:
    """Return how many codes fill a vector of the processor; 0 without kernels."""
    if not has_kernels():
        return 0
    from tenonnx_cpu.jit.code.cpu import cpu

    return cpu().lanes * 32 // bits
