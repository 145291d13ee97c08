"""The smallest set of nodes, outputs and sizes with which a model still fails."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from tenonnx.graph import array_of

# Sizes that axes are cut to, tried in this order.
SMALL_SIZES = (1, 2, 3, 4, 8, 16, 32, 64)

# Elements of an integer tensor up to which it may be a shape, whose sizes are cut, too.
MAX_SHAPE_ELEMENTS = 16


def fewest(items: Sequence[int], fails: Callable[[Sequence[int]], bool]) -> list[int]:
    """Return a subset that still fails, of which no single item can be left out.

    This is delta debugging: Zeller and Hildebrandt, Simplifying and Isolating Failure-Inducing
    Input, IEEE Transactions on Software Engineering 28(2), 2002.

    Args:
        items: All items; they fail.
        fails: Whether a subset, in the items' order, fails.
    """
    left, pieces = list(items), 2
    while len(left) > 1:
        chunks = [list(chunk) for chunk in np.array_split(left, pieces)]
        chunk = next((chunk for chunk in chunks if fails(chunk)), None)
        if chunk is not None:
            left, pieces = chunk, 2
            continue
        others = ([item for item in left if item not in set(chunk)] for chunk in chunks)
        rest = next((other for other in others if fails(other)), None) if pieces > 2 else None
        if rest is not None:
            left, pieces = rest, max(pieces - 1, 2)
        elif pieces >= len(left):
            break
        else:
            pieces = min(2 * pieces, len(left))
    return [int(item) for item in left]


def sizes_of(model: ir.Model, feeds: Iterable[Any]) -> list[int]:
    """Return the sizes of axes of inputs and weights beyond 1, the greatest first."""
    arrays = [*_weights(model).values(), *(x for x in feeds if isinstance(x, np.ndarray))]
    return sorted({size for array in arrays for size in array.shape if size > 1}, reverse=True)


def cut(
    model: ir.Model, feeds: dict[str, Any], size: int, smaller: int
) -> tuple[ir.Model, dict[str, Any]]:
    """Return a model and its feeds in which every axis of a size is cut to a smaller one.

    Integers of small tensors that equal the size, as in the shape of a Reshape, become the smaller
    one. Whether the model still makes sense is for the reference to say.
    """
    copy = model.clone()
    for name, array in _weights(copy).items():
        value = copy.graph.initializers[name]
        changed = _cut(array, size, smaller)
        if array.dtype == np.int64 and array.size <= MAX_SHAPE_ELEMENTS:
            changed = np.where(changed == size, smaller, changed)
        value.const_value = ir.tensor(np.ascontiguousarray(changed), name=name)
        value.shape = ir.Shape(changed.shape)
    graph = copy.graph
    for value in (*graph.inputs, *(v for node in graph for v in node.outputs)):
        value.shape = None
    return copy, {
        name: _cut(x, size, smaller) if isinstance(x, np.ndarray) else x
        for name, x in feeds.items()
    }


def _weights(model: ir.Model) -> dict[str, np.ndarray[Any, Any]]:
    return {
        name: array_of(value.const_value)
        for name, value in model.graph.initializers.items()
        if value.const_value is not None
    }


def _cut(array: np.ndarray[Any, Any], size: int, smaller: int) -> np.ndarray[Any, Any]:
    return array[tuple(slice(smaller if each == size else None) for each in array.shape)]
