"""Products with a matrix that is dequantized some rows at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from tenonnx import Array, Namespace, interruption

# Dequantized weights that exist at a time: they stay in a core's cache.
DEQUANTIZED_TILE_BYTES: Final = 2 << 20


def strips(rows: int, columns: int, size: int = DEQUANTIZED_TILE_BYTES) -> Iterator[slice]:
    """Yield the rows to dequantize at a time, having looked whether to stop.

    Args:
        rows: All of them.
        columns: Of a row.
        size: Bytes that they may take as float32.
    """
    step = max(size // max(4 * columns, 1), 1)
    for start in range(0, rows, step):
        interruption.check()
        yield slice(start, min(start + step, rows))


def tiled(
    xp: Namespace,
    x: Array,
    tile: Callable[[slice], Array],
    shape: tuple[int, int],
    bias: Array | None = None,
) -> Array:
    """Return ``x @ W.T + bias`` for a matrix W of this shape, whose rows ``tile`` gives."""
    rows, columns = shape
    flat = x.reshape(-1, columns)
    out = xp.empty((flat.shape[0], rows), x.dtype)
    for strip in strips(rows, columns):
        out[:, strip] = flat @ tile(strip).T
    if bias is not None:
        out += bias.astype(out.dtype, copy=False)
    return out.reshape(*x.shape[:-1], rows)
