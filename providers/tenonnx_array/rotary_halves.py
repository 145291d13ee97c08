"""Rotary embeddings as exporters write them: halves are exchanged, one of them negated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tenonnx.by_name import cacheable
from tenonnx.graph import array_of, attribute
from tenonnx.planning.anchors import Part, Walk, other
from tenonnx.planning.fusion import Scope, beside
from tenonnx.planning.lower import is_constant

if TYPE_CHECKING:
    import onnx_ir as ir

# The last of four axes.
LAST: Final = (-1, 3)


@cacheable
@dataclass(frozen=True)
class Halves:
    """The halves of the last axis that are exchanged.

    Attributes:
        half: The length of the first one; ``None`` if it is computed as the model runs.
        end: Where the second one ends at most.
    """

    half: int | None
    end: int

    def fit(self, shape: tuple[int, ...], half: int) -> bool:
        """Return whether such a half is half of what is turned, which has four axes."""
        return len(shape) == 4 and 0 < shape[3] == 2 * half and self.end >= shape[3]


@dataclass(frozen=True)
class RotaryHalves:
    """``x * cos + concat(-x[half:end], x[:half]) * sin`` along the last of four axes.

    Attributes:
        nodes: In order.
        inputs: x, cosines and sines; and half of the last axis, if that is computed as it runs.
        halves: The halves of that axis.
    """

    nodes: tuple[ir.Node, ...]
    inputs: tuple[ir.Value, ...]
    halves: Halves


def find_rotary_halves(minus: ir.Node, scope: Scope) -> RotaryHalves | None:
    """Return the rotary embedding in which a Neg is, if nobody reads its intermediate results.

    A fusion that calls it takes ``ROTARY_PARTS``.
    """
    walk = scope.follow(minus)
    if not walk.is_whole:
        return None
    _, joined, crossed, add = walk.nodes
    low, sin, straight = (walk.found[part.name] for part in ROTARY_PARTS)
    high = _maker(minus.inputs[0], "Slice", scope)
    x = None if high is None else high.inputs[0]
    if x is None or high is None or low.inputs[0] is not x or x not in straight.inputs:
        return None
    cos, half = straight.inputs[beside(straight, x)], low.inputs[2] if len(low.inputs) > 2 else None
    bounds = _bounds(low, high)
    if cos is None or half is None or bounds is None:
        return None
    known, end = bounds
    nodes = (low, high, minus, joined, straight, crossed, add)
    return RotaryHalves(nodes, (x, cos, sin, *(() if known else (half,))), Halves(known, end))


def _joined(node: ir.Node, walk: Walk[Any]) -> ir.Node | str:
    """Read the Slice that the negated half is put before."""
    if len(node.inputs) != 2 or node.inputs[0] is not walk.value:
        return "the negated half does not come first of two"
    if attribute(node, "axis", 0) not in LAST:
        return "it is not along the last of four axes"
    return _maker(node.inputs[1], "Slice", walk.scope) or "it joins no slice"


def _straight(node: ir.Node, walk: Walk[Any]) -> ir.Node | str:
    return _maker(node.inputs[walk.beside(node)], "Mul", walk.scope) or "it adds no product"


ROTARY_PARTS: Final = (
    Part("half", ("Concat",), _joined, needed=True),
    Part("sines", ("Mul",), other, needed=True),
    Part("cosines", ("Add",), _straight, needed=True),
)


def _maker(value: ir.Value | None, op_type: str, scope: Scope) -> ir.Node | None:
    """Return the node that makes a value, if its operator is named so and one node reads that."""
    node = scope.maker(value, op_type)
    return None if node is None or scope.reader(node.outputs[0]) is None else node


def _bounds(low: ir.Node, high: ir.Node) -> tuple[int | None, int] | None:
    """Return where two slices meet, if that is a constant, and where the second one ends.

    ``x.shape[-1] // 2`` is what that is in models whose sizes are computed as they run.
    """
    first, second = ([_number(value) for value in each.inputs[1:]] for each in (low, high))
    if any(len(b) < 3 or b[2] not in LAST or b[3:] not in ([], [1]) for b in (first, second)):
        return None
    (zero, half, *_), (start, end, *_) = first, second
    if zero != 0 or end is None:
        return None
    if half is None:
        return (half, end) if low.inputs[2] is high.inputs[1] else None
    return (half, end) if 0 < half == start and end >= 2 * half else None


def _number(value: ir.Value | None) -> int | None:
    if value is None or not is_constant(value) or value.const_value is None:
        return None
    array = array_of(value.const_value)
    return int(array.reshape(())) if array.size == 1 else None
