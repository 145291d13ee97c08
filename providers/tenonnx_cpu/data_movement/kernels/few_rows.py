"""A few rows joined element by element, or parted: pixels of images, for one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from llvmlite import ir

from tenonnx_cpu.data_movement.kernels import FEW_LINES
from tenonnx_cpu.jit.vectors import vector as v
from tenonnx_cpu.jit.vectors.lanes import LANES
from tenonnx_cpu.jit.vectors.shared import shared
from tenonnx_cpu.jit.vectors.vector import I64, Builder, Value

# Elements of a vector, by their bytes.
LANES_OF = {1: LANES, 2: LANES, 4: LANES, 8: LANES // 2}


@shared(
    "tenonnx_transpose_few",
    {
        (n, way, size): (n, bool(way), size)
        for n in FEW_LINES
        for way in (0, 1)
        for size in LANES_OF
    },
)
def transpose_few(
    b: Builder, few: int, joins: bool, size: int, /, whole: Value, first: Value, apart: Value,
    count: Value,
) -> None:  # fmt: skip
    """Join a few rows, element by element of each in turn, or part such elements into rows.

    Args:
        whole: Address of the joined elements.
        first: Address of the first row.
        apart: Bytes from row to row.
        count: Elements of a row.
    """
    starts = [b.add(first, b.mul(apart, I64(n))) for n in range(few)]

    def move(done: Value, lanes: int) -> None:
        kind = v.vector(ir.IntType(8 * size), lanes) if lanes > 1 else ir.IntType(8 * size)
        step, place = lanes * size, b.mul(done, I64(size))
        joined = b.add(whole, b.mul(place, I64(few)))
        rows = [b.add(start, place) for start in starts]
        parts = [b.add(joined, I64(n * step)) for n in range(few)]
        reads, writes = (rows, parts) if joins else (parts, rows)
        seen = [v.load(b, kind, read) for read in reads]
        for n, write in enumerate(writes):
            if joins:
                wanted = [divmod(i, few)[::-1] for i in range(n * lanes, (n + 1) * lanes)]
            else:
                wanted = [divmod(i * few + n, lanes) for i in range(lanes)]
            v.store(b, _picked(b, seen, wanted) if lanes > 1 else seen[n], write)

    def some(begin: Value, lanes: int) -> Callable[[Value, list[Value]], list[Value]]:
        def body(index: Value, carried: list[Value]) -> list[Value]:
            move(b.add(begin, b.mul(index, I64(lanes))), lanes)
            return carried

        return body

    lanes = LANES_OF[size]
    vectors = b.sdiv(count, I64(lanes))
    done = b.mul(vectors, I64(lanes))
    v.loop(b, vectors, [], some(I64(0), lanes))
    v.loop(b, b.sub(count, done), [], some(done, 1))


def _picked(b: Builder, vectors: Sequence[Value], wanted: Sequence[tuple[int, int]]) -> Value:
    """Return a vector of lanes of some others, each by the vector's number and its own."""
    lanes, made = len(wanted), vectors[0]
    for n, x in enumerate(vectors[1:], 1):
        before = [lane if n == 1 else i for i, (_, lane) in enumerate(wanted)]
        order = [
            lanes + lane if own == n else at for at, (own, lane) in zip(before, wanted, strict=True)
        ]
        made = v.shuffle(b, made, x, order)
    return made
