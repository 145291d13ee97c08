"""Sums of products of bfloat16 in float32, kept in registers: AVX-512's ``vdpbf16ps``.

A lane is a pair of bfloat16. The panels are those that tiles read: see ``amx``.
"""

from __future__ import annotations

from llvmlite import ir

from tenonnx_cpu.jit.code.cpu import cpu
from tenonnx_cpu.jit.vectors import vector as v
from tenonnx_cpu.jit.vectors.amx import CACHE_LINE, HAS_TILES, PANEL_ROW, TILE_ROW
from tenonnx_cpu.jit.vectors.tiles import Rows, add_products, addresses, store_sums
from tenonnx_cpu.jit.vectors.vector import F32, I32, I64, Builder, Value

# Whether products of bfloat16 are summed in registers.
HAS_PAIRS = cpu().bf16 and not HAS_TILES

# Rows of sums at most: they, two vectors of B and one of A fill the 32 registers.
TALLEST_PAIRS = 14

# Pairs of a vector.
VECTOR_PAIRS = 16

# Pairs of a row that bring a line of the cache along: as many lines as `amx.AHEAD` says.
PAIRS_PER_LINE = 2


class _BFloat16(ir.types.Type):
    """LLVM's bfloat16, which llvmlite has no name for."""

    def _to_string(self) -> str:
        return "bfloat"


BF16 = _BFloat16()
SUMS, FACTORS, WORDS = (
    v.vector(kind, lanes)
    for kind, lanes in ((F32, VECTOR_PAIRS), (BF16, 2 * VECTOR_PAIRS), (I32, VECTOR_PAIRS))
)


def dot(b: Builder, left: Value, right: Value, sums: Value) -> Value:
    """Add, in every lane, the products of two bfloat16 by two others to a float32."""
    return v.call_function(b, "llvm.x86.avx512bf16.dpbf16ps.512", SUMS, sums, left, right)


def _pair(b: Builder, address: Value) -> Value:
    """Load a pair into every lane."""
    return b.bitcast(v.splat(b, v.load(b, I32, address, 2), VECTOR_PAIRS), FACTORS)


def sum_pairs(
    b: Builder,
    vectors: int,
    rows: int,
    a: Value,
    a_row: Value,
    offsets: Value,
    panel: Value,
    pairs: Value,
    ahead: Value,
) -> list[Value]:
    """Return sums of products, row after row.

    Args:
        b: Writes it.
        vectors: Columns of vectors: 1 or 2.
        rows: Of A, ``TALLEST_PAIRS`` at most.
        a: Address that offsets count from in the first row; ``a_row`` is bytes from row to row.
        offsets: Address of an int64 for every pair of a row of A: bytes to it.
        panel: Address of a panel of B: for every pair a row of ``PANEL_ROW``.
        pairs: How many.
        ahead: Address of what comes next: every ``PAIRS_PER_LINE`` pairs bring a line of it into
            the second-level cache.
    """
    left = Rows(b, a, a_row, rows)

    def step(index: Value, carried: list[Value]) -> list[Value]:
        line, sums = carried[0], carried[1:]
        v.prefetch(b, b.add(ahead, b.mul(index, I64(CACHE_LINE // PAIRS_PER_LINE))))
        place = v.load(b, I64, b.add(offsets, b.mul(index, I64(8))), 8)
        rights = [v.load(b, FACTORS, b.add(line, I64(TILE_ROW * n)), 4) for n in range(vectors)]
        lefts = (_pair(b, address) for address in left.at(b, left.pointers, place))
        return [b.add(line, I64(PANEL_ROW)), *add_products(b, dot, lefts, rights, sums)]

    zeros = [v.constant(SUMS, 0.0)] * (rows * vectors)
    return v.loop(b, pairs, [panel, *zeros], step)[1:]


def store_pairs(
    b: Builder, vectors: int, sums: list[Value], c: Value, c_row: Value, c_vector: Value,
    adds: Value,
) -> None:  # fmt: skip
    """Store sums, or add them to what is there.

    ``c_row`` is bytes from row to row, ``c_vector`` those from one vector of columns to the next.
    """
    starts = addresses(b, c, c_row, range(len(sums) // vectors))
    places = [b.add(start, b.mul(c_vector, I64(n))) for start in starts for n in range(vectors)]
    store_sums(b, sums, places, adds)
