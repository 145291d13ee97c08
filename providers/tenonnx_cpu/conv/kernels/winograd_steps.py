"""Tiles of images on their way into products and back, in vector code.

The matrices are those of ``tenonnx_cpu.conv.winograd``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tenonnx_cpu.conv.kernels.winograd_matrices import POINTS, matrices
from tenonnx_cpu.jit.vectors import vector as v
from tenonnx_cpu.jit.vectors.lanes import KIND, LANES, MASK, lanes_between, load_masked
from tenonnx_cpu.jit.vectors.shared import shared
from tenonnx_cpu.jit.vectors.vector import I64, Builder, Value

# Tiles side by side that are transformed together: they see no more than `size` vectors.
UNIT = LANES - 1

CHANNELS_BYTES = 4 * LANES


@shared("tenonnx_tiles_of_image", [(size,) for size in POINTS])
def transform_image(
    b: Builder, size: int, /, source: Value, height: Value, width: Value, top: Value, left: Value,
    target: Value, apart: Value,
) -> None:  # fmt: skip
    """Write ``B^T d B`` of tiles side by side in a channel; beyond the channel are zeros.

    Args:
        source: Address of the channel.
        height: Of the channel.
        top: Row of the channel where the tiles begin to see; it may be before the first.
        left: Column of the channel where the first tile begins to see, likewise.
        target: Address of a vector of which the first ``UNIT`` elements count, a tile each.
        apart: Bytes from it to that of the next place of a tile.
    """
    matrix = matrices(size).image
    count = len(matrix)
    begins = [b.add(left, I64(n * LANES)) for n in range(size)]
    masks = [lanes_between(b, b.neg(first), b.sub(width, first)) for first in begins]
    columns: list[list[Value]] = [[] for _ in range(size)]
    for y in range(count):
        row = b.add(top, I64(y))
        within = b.and_(b.icmp_signed(">=", row, I64(0)), b.icmp_signed("<", row, height))
        start = b.add(b.mul(row, width), left)
        for n, mask in enumerate(masks):
            address = b.add(source, b.mul(b.add(start, I64(n * LANES)), I64(4)))
            mask = b.select(within, mask, v.constant(MASK, 0))
            columns[n].append(load_masked(b, address, mask))
    lines = zip(*(_rows_by(b, matrix, column) for column in columns), strict=True)
    for y, line in enumerate(lines):
        phases = _apart(b, line)
        following = [v.shuffle(b, phase, phase, [*range(1, LANES), 0]) for phase in phases[:2]]
        for x, value in enumerate(_rows_by(b, matrix, [*phases, *following])):
            v.store(b, value, b.add(target, b.mul(apart, I64(y * count + x))), 4)


@shared("tenonnx_tiles_of_products", [(size,) for size in POINTS])
def transform_products(
    b: Builder, size: int, /, source: Value, apart: Value, tiles: Value, next_tile: Value,
    target: Value, next_line: Value, odd: Value,
) -> None:  # fmt: skip
    """Write ``A^T M A`` of tiles side by side, for as many channels as a vector has lanes.

    Args:
        source: Address of the first place of the first tile.
        apart: Bytes to the next place.
        tiles: How many.
        next_tile: Bytes to the next tile.
        target: Address of the first line; of each of its columns there is a vector.
        next_line: Bytes to the next line.
        odd: Address of a float that becomes NaN if a result is NaN or infinite.
    """
    matrix = matrices(size).results
    count = matrix.shape[1]

    def tile(index: Value, carried: list[Value]) -> list[Value]:
        here, there, seen = carried
        columns = []
        for x in range(count):
            places = [b.mul(apart, I64(y * count + x)) for y in range(count)]
            column = [v.load(b, KIND, b.add(here, place), 4) for place in places]
            columns.append(_columns_by(b, matrix, column))
        for y, line in enumerate(zip(*columns, strict=True)):
            start = b.add(there, b.mul(next_line, I64(y)))
            for x, value in enumerate(_columns_by(b, matrix, line)):
                v.store(b, value, b.add(start, I64(CHANNELS_BYTES * x)), 4)
                seen = v.fma(b, value, v.constant(KIND, 0.0), seen)
        return [b.add(here, next_tile), b.add(there, I64(CHANNELS_BYTES * size)), seen]

    seen = v.loop(b, tiles, [source, target, v.constant(KIND, 0.0)], tile)[2]
    sum_of = v.total(b, seen)
    with b.if_then(b.fcmp_unordered("uno", sum_of, sum_of), likely=False):
        v.store(b, sum_of, odd, 4)


def _apart(b: Builder, vectors: Sequence[Value]) -> list[Value]:
    """Return every n-th lane of n vectors joined, n being a power of two, from each on."""
    if len(vectors) == 1:
        return list(vectors)
    pairs = list(zip(vectors[::2], vectors[1::2], strict=True))
    even, odd = (
        _apart(b, [v.shuffle(b, x, y, range(first, 2 * LANES, 2)) for x, y in pairs])
        for first in range(2)
    )
    return [value for pair in zip(even, odd, strict=True) for value in pair]


def _rows_by(b: Builder, matrix: np.ndarray[Any, Any], x: Sequence[Value]) -> list[Value]:
    """Return ``matrix @ x``; rows for opposite points share their even and odd terms."""
    made: list[Value] = []
    while len(made) < len(matrix):
        row = matrix[len(made)]
        following = matrix[len(made) + 1] if len(made) + 1 < len(matrix) else row
        if (row == following).all() or not (abs(row) == abs(following)).all():
            made.append(_weighted(b, row, x))
            continue
        same = _weighted(b, np.where(row == following, row, 0), x)
        other = _weighted(b, np.where(row == following, 0, row), x)
        made += [b.fadd(same, other), b.fsub(same, other)]
    return made


def _columns_by(b: Builder, matrix: np.ndarray[Any, Any], x: Sequence[Value]) -> list[Value]:
    """Return ``matrix @ x``; columns for opposite points share their sums and differences."""
    sums = [x[0]]
    for one, two in zip(x[1:-1:2], x[2:-1:2], strict=True):
        sums += [b.fadd(one, two), b.fsub(one, two)]
    sums.append(x[-1])
    rows = []
    for power, row in enumerate(matrix):
        weights = np.zeros(len(x))
        weights[0], weights[-1] = row[0], row[-1]
        weights[1 + power % 2 : len(x) - 1 : 2] = row[1 : len(x) - 1 : 2]
        rows.append(_weighted(b, weights, sums))
    return rows


def _weighted(b: Builder, weights: np.ndarray[Any, Any], x: Sequence[Value]) -> Value:
    """Return ``weights @ x``, without terms that are nothing."""
    total = None
    for weight, value in sorted(zip(weights, x, strict=True), key=lambda term: abs(term[0]) != 1):
        if weight == 0:
            continue
        if total is None and weight == 1:
            total = value
        elif total is None:
            total = b.fmul(value, v.constant(KIND, weight))
        elif abs(weight) == 1:
            total = b.fadd(total, value) if weight == 1 else b.fsub(total, value)
        else:
            total = v.fma(b, value, v.constant(KIND, weight), total)
    return total
