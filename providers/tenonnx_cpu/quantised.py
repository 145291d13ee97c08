"""Products with blockwise quantised matrices, which stay as they are stored."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from tenonnx_cpu.buffers import empty
from tenonnx_cpu.jit.runtime import JitKernel, has_numba
from tenonnx_cpu.jit.workspace import WORKSPACE
from tenonnx_cpu.product import F32, NO_BIAS, NO_RESIDUAL, PLAIN, Epilogue, fits, floats
from tenonnx_cpu.specialise import NDArray

GEMM = {bits: JitKernel("q_gemm", f"q_gemm_{bits}") for bits in (2, 4, 8)}

DOTS = {bits: JitKernel("q_stream", f"q_dots_{bits}") for bits in (2, 4, 8)}
BYTES = {bits: JitKernel("q_bytes", f"q_bytes_{bits}") for bits in (2, 4)}
FEW = 4
"""Rows up to which codes are read once, by rows as bytes."""

NO_ZEROS = np.empty(0, np.uint8)
FLIP = {2: 0xAA, 4: 0x88, 8: 0x80}
"""Bytes that invert the highest bit of every code: signed ones become unsigned."""


@dataclass(frozen=True)
class Quantised:
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
        """Refuses what does not fit together.

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

    @functools.cached_property
    def arguments(self) -> tuple[Any, ...]:
        """What every kernel takes of it."""
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
        fits = group & (group - 1) == 0 and group >= chunk // 8 and self.block % group == 0
        return group if fits and self.depth % self.block == 0 else 0

    @functools.cached_property
    def group_of_words(self) -> int:
        """Elements of activations that get a scale in common where codes become bytes.

        0 if the matrix does not consist of whole panels of them.
        """
        panel = chunk_codes(16)
        if self.bits == 8 or not panel or self.columns % panel or self.depth % 16:
            return 0
        common = math.gcd(self.block, self.depth) if self.block < self.depth else self.depth
        return next(group for group in (128, 64, 32, 16, 1) if common % group == 0) // 16 * 16


@functools.cache
def chunk_codes(bits: int) -> int:
    """Returns how many codes fill a vector of the processor; 0 without numba."""
    if not has_numba():
        return 0
    from tenonnx_cpu.jit.cpu import cpu

    return cpu().lanes * 32 // bits


def request(bits: int) -> None:
    """Has the kernels for codes of so many bits compiled."""
    GEMM[bits].request()
    DOTS[bits].request()
    if bits in BYTES:
        BYTES[bits].request()


def matmul_q(
    x: NDArray,
    weights: Quantised,
    threads: int,
    bias: NDArray | None = None,
    residual: NDArray | None = None,
    epilogue: Epilogue = PLAIN,
    activations: Literal["float32", "int8"] = "int8",
) -> NDArray | None:
    """Returns ``activation(alpha * x @ W + bias + residual)`` as float32.

    Args:
        x: float32, ``(..., depth)``.
        weights: W.
        threads: How many to use at most.
        bias: float32, one for every column.
        residual: float32, of the result's shape.
        epilogue: What else to do.
        activations: ``"int8"`` allows x to be rounded to 8 bits, block by block, where that is
            faster: about 0.4 % of a block's greatest element.

    Returns:
        ``None`` if the kernel is not ready or does not take these arrays.
    """
    depth, columns = weights.depth, weights.columns
    if x.dtype != F32 or x.shape[-1] != depth or not x.size or not x.flags.aligned:
        return None
    rows = x.reshape(-1, depth)
    shape = (*x.shape[:-1], columns)
    if bias is not None and not (bias.shape == (columns,) and fits(bias)):
        return None
    if residual is not None and not (residual.shape == shape and fits(residual)):
        return None
    result = empty(shape)
    extras = (
        result.reshape(-1, columns), NO_BIAS if bias is None else bias,
        NO_RESIDUAL if residual is None else residual.reshape(-1, columns),
        epilogue.alpha, epilogue.activation, epilogue.first, epilogue.second,
    )  # fmt: skip
    if activations == "int8" and len(rows) <= FEW and (group := weights.group_of_chunk):
        run = DOTS[weights.bits].run
        if run is None:
            return None
        count = 4 if len(rows) > 2 else len(rows)
        run(
            np.ascontiguousarray(rows), *weights.arguments, group, *extras,
            np.zeros((count, depth), np.int8), np.zeros((2, count, depth // group), np.float32),
            np.empty((threads, 32), np.float32), threads,
        )  # fmt: skip
        return result
    if activations == "int8" and (group := weights.group_of_words):
        run = BYTES[weights.bits].run
        if run is None:
            return None
        run(
            np.ascontiguousarray(rows), *weights.arguments, group, *extras,
            np.empty(rows.shape, np.uint8), np.empty((2, len(rows), depth // group), np.float32),
            floats(WORKSPACE * threads), threads,
        )  # fmt: skip
        return result
    run = GEMM[weights.bits].run
    if run is None:
        return None
    run(rows, *weights.arguments, *extras, floats(WORKSPACE * threads), threads)
    return result
