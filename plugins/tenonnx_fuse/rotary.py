"""Rotary position embedding, which exporters write as products and an exchange of halves."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from tenonnx import HOST, TransformContext
from tenonnx.graph import graphs
from tenonnx_fuse.constants import derived
from tenonnx_fuse.heads import size_of
from tenonnx_fuse.known import array_of, attribute, integers_of, operand, rank_of, weight_of
from tenonnx_fuse.pattern import Found, Pattern, let, op
from tenonnx_fuse.rewrite import Rule, rewriting
from tenonnx_fuse.subexpressions import share


def _last_axis(node: ir.Node) -> str | None:
    axis, rank = attribute(node, "axis", 0), rank_of(operand(node, 0))
    return None if axis in (-1, (rank or 0) - 1) else f"joins along axis {axis}"


def _turned(x: str) -> Pattern:
    """The halves of a value exchanged, the one that comes to the front negated."""
    high, low = let("high", op("Slice", x, more=True)), let("low", op("Slice", x, more=True))
    return op("Concat", op("Neg", high), low, where=_last_axis)


ROTARY = op("Add", op("Mul", "x", "cos"), op("Mul", _turned("x"), "sin"))


def _rotary(found: Found, context: TransformContext) -> list[ir.Node] | str:
    x, cos, sin = (found.values[name] for name in ("x", "cos", "sin"))
    if rank_of(x) != 4:
        return f"'{x.name}' is not known to have four axes"
    bounds = [_bounds(found.values[name]) for name in ("low", "high")]
    if bounds[0] is None or bounds[1] is None:
        return "a half is not cut by constants out of the last axis"
    (zero, half), (start, end) = bounds[0], bounds[1]
    if zero != 0 or start != half or half <= 0 or end < 2 * half:
        return f"{zero}:{half} and {start}:{end} are no halves"
    new: list[ir.Node] = []
    caches = []
    for wave in (cos, sin):
        if why := _unfit(wave, x, half):
            return f"'{wave.name}' {why}"
        caches.append(_constant(wave, half, context) or _cut(wave, half, new))
    new.append(ir.node("RotaryEmbedding", [x, *caches], version=23))
    return new


def _bounds(half: ir.Value) -> tuple[int, int] | None:
    """Returns where a Slice of the last of four axes begins and ends."""
    node = half.producer()
    parts = [] if node is None else [integers_of(value) for value in node.inputs[1:]]
    if len(parts) < 3 or any(part is None or len(part) != 1 for part in parts):
        return None
    start, end, axis, *step = (part[0] for part in parts if part is not None)
    return (start, end) if axis in (-1, 3) and step in ([], [1]) else None


def _unfit(wave: ir.Value, x: ir.Value, half: int) -> str | None:
    """Says why cosines or sines are no cache of the operator: (batch, length, size / 2)."""
    if wave.shape is None or x.shape is None or len(wave.shape) != 4 or wave.shape[1] != 1:
        return "is not known to be of shape (batch, 1, length, size)"
    if x.shape[3] != 2 * half:
        return f"goes with heads of size {x.shape[3]}, not twice {half}"
    for axis, name in ((0, "batch"), (2, "length")):
        if size_of(wave, axis) != size_of(x, axis):
            return (
                f"is of {name} {wave.shape[axis]}, and the operator wants that of {x.shape[axis]}"
            )
    array = array_of(wave)
    if array is not None:
        twice = array.shape[-1] == 2 * half
        twice = twice and np.array_equal(array[..., :half], array[..., half:])
    else:
        twice = _is_doubled(wave)
    return None if twice else "is not known to have each angle in both halves"


def _is_doubled(wave: ir.Value) -> bool:
    """Says whether a value is a function of something joined with itself."""
    maker = wave.producer()
    while maker is not None and maker.op_type in ("Unsqueeze", "Cast", "Mul", "Cos", "Sin"):
        if maker.op_type == "Mul" and not _times_number(maker):
            return False
        first = operand(maker, 0)
        maker = None if first is None else first.producer()
    if maker is None or maker.op_type != "Concat" or _last_axis(maker) is not None:
        return False
    return len(maker.inputs) == 2 and operand(maker, 0) is operand(maker, 1)


def _times_number(node: ir.Node) -> bool:
    weight = weight_of(operand(node, 1))
    return weight is not None and weight.shape in ((), (1,))


def _constant(wave: ir.Value, half: int, context: TransformContext) -> ir.Value | None:
    """Returns the cache as a view of constant cosines or sines."""
    weight = weight_of(wave)
    graph = wave.graph
    if weight is None or not isinstance(graph, ir.Graph):
        return None
    key = f"rotary-half-1:{half}:{weight.key}"
    return derived(
        graph, f"{wave.name}/half", key, lambda: weight.on(HOST)[:, 0, :, :half], [weight], context
    )


def _cut(wave: ir.Value, half: int, new: list[ir.Node]) -> ir.Value:
    """Returns the cache that is cut out of cosines or sines as the model runs."""
    numbers = [ir.tensor(np.array([number], np.int64)) for number in (0, half, 3, 1)]
    parts = [ir.node("Constant", [], {"value": number}, version=13) for number in numbers]
    zero, end, axis, heads = (part.outputs[0] for part in parts)
    cut = ir.node("Slice", [wave, zero, end, axis], version=13)
    flat = ir.node("Squeeze", [cut.outputs[0], heads], version=13)
    new += [*parts, cut, flat]
    return flat.outputs[0]


_rewrite = rewriting(Rule("RotaryEmbedding", ROTARY, _rotary, enough=5, needs=("Neg", "Slice")))


def rotary(model: ir.Model, context: TransformContext) -> bool:
    """Finds rotary embeddings; what is cut for them is cut once for all layers."""
    modified = _rewrite(model, context)
    if modified:
        for graph in graphs(model):
            share(graph)
    return modified
