"""Large results computed a few MiB at a time, straight into where they are kept."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import onnx_ir as ir

from tenonnx import HOST, TransformContext, Weight
from tenonnx.graph.traits import ELEMENTWISE

FOLDED_PIECE_BYTES: Final = 2 << 20

Array = np.ndarray[Any, Any]


class Pieces(NamedTuple):
    """A result that is known but for its elements.

    Attributes:
        dtype: Its ONNX element type.
        shape: Its shape.
        fill: Computes it into an array.
    """

    dtype: ir.DataType
    shape: tuple[int, ...]
    fill: Callable[[Array], None]

    @property
    def nbytes(self) -> int:
        """Bytes of its elements."""
        return math.prod(self.shape) * self.dtype.bitwidth // 8


def in_pieces(
    node: ir.Node, weights: Sequence[Weight | None], context: TransformContext
) -> Pieces | None:
    """Return how to compute a node piece by piece; ``None`` if that is no gain or not possible."""
    sources = [weight for weight in weights if weight is not None]
    if len(sources) < len(weights) or max(w.nbytes for w in sources) < 2 * FOLDED_PIECE_BYTES:
        return None
    if any(weight.dtype.bitwidth < 8 for weight in sources):
        return None
    if node.domain or len(node.outputs) != 1 or (node.version or 1) < 7:
        return None
    arrays = [weight.on(HOST) for weight in sources]
    if node.op_type == "Concat":
        return _concatenated(node, sources, arrays)
    return _elementwise(node, arrays, context) if node.op_type in ELEMENTWISE else None


def _concatenated(node: ir.Node, sources: list[Weight], arrays: list[Array]) -> Pieces:
    axis = node.attributes["axis"].as_int() % arrays[0].ndim
    sizes = [array.shape[axis] for array in arrays]
    shape = (*arrays[0].shape[:axis], sum(sizes), *arrays[0].shape[axis + 1 :])

    def fill(out: Array) -> None:
        places = np.split(out, np.cumsum(sizes)[:-1], axis=axis)
        for place, array in zip(places, arrays, strict=True):
            np.copyto(place, array)

    return Pieces(sources[0].dtype, shape, fill)


def _elementwise(node: ir.Node, arrays: list[Array], context: TransformContext) -> Pieces | None:
    shape = np.broadcast_shapes(*(array.shape for array in arrays))
    axis = next((axis for axis, size in enumerate(shape) if size > 1), None)
    if axis is None:
        return None
    # The node's own inputs are constants, of which kernels for pieces of them must not know.
    values = [ir.Value(name=f"piece{position}") for position in range(len(arrays))]
    attributes = tuple(node.attributes.values())
    alike = ir.Node("", node.op_type, values, attributes, num_outputs=1, version=node.version)

    def compute(part: slice) -> Array:
        with np.errstate(all="ignore"):
            results = context.evaluate(alike, list(_parts(arrays, len(shape), axis, part)))
        return np.asarray(results and results[0])

    probe = compute(slice(0, 1))
    if probe.shape != (*shape[:axis], 1, *shape[axis + 1 :]):
        return None
    dtype = ir.DataType.from_numpy(probe.dtype)
    if dtype.bitwidth < 8:
        return None
    step = max(1, FOLDED_PIECE_BYTES // max(1, probe.nbytes))

    def fill(out: Array) -> None:
        for start in range(0, shape[axis], step):
            part = slice(start, start + step)
            np.copyto(out[(slice(None),) * axis + (part,)], compute(part))

    return Pieces(dtype, shape, fill)


def _parts(arrays: list[Array], rank: int, axis: int, part: slice) -> Iterator[Array]:
    """Yield the parts of arrays that broadcast to a part of the result along an axis."""
    for array in arrays:
        own = axis - (rank - array.ndim)
        cut = own >= 0 and array.shape[own] > 1
        yield array[(slice(None),) * own + (part,)] if cut else array
