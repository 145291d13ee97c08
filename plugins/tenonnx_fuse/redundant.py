"""Nodes that give back what they get, and pairs of which one will do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from tenonnx import TransformContext, WeightTensor
from tenonnx.graph import graphs
from tenonnx.graph.sizes import ANY, integers_of, operand, rank_of, sizes_of
from tenonnx.graph.traits import BROADCASTING
from tenonnx_fuse.bypass import bypass, note_removed
from tenonnx_fuse.known import array_of, attribute, permutation, weight_of


def drop_redundant(model: ir.Model, context: TransformContext) -> bool:
    """Take out what changes nothing: Identity, Dropout, Reshape, Transpose, Expand and others."""
    done: Counter[str] = Counter()
    for graph in graphs(model):
        for node in tuple(graph):
            visit = None if node.domain or node.graph is not graph else VISITS.get(node.op_type)
            if visit is not None and node.inputs and node.outputs and visit(node):
                done[node.op_type] += 1
    return note_removed(context, done)


def _drop(node: ir.Node) -> bool:
    x = operand(node, 0)
    return x is not None and bypass(node, x)


def _identity(node: ir.Node) -> bool:
    return _drop(node)


def _dropout(node: ir.Node) -> bool:
    """Take it out in inference, which is how every model runs that does not say otherwise."""
    training = operand(node, 2) if len(node.inputs) > 2 else None
    if training is not None:
        value = array_of(training)
        if value is None or value.any():
            return False
    wants_mask = any(o.uses() or o.is_graph_output() for o in node.outputs[1:])
    return (node.version or 1) >= 7 and not wants_mask and _drop(node)


def _transpose(node: ir.Node) -> bool:
    """Take out one that moves no axis, or join it with the one before it."""
    order = permutation(node)
    x = operand(node, 0)
    if order is None or x is None:
        return False
    if order == tuple(range(len(order))):
        return _drop(node)
    before = x.producer()
    if before is None or before.op_type != "Transpose" or before.domain:
        return False
    first, origin = permutation(before), operand(before, 0)
    if first is None or origin is None or len(first) != len(order):
        return False
    joined = tuple(first[axis] for axis in order)
    if joined == tuple(range(len(order))):
        return bypass(node, origin)
    node.replace_input_with(0, origin)
    node.attributes["perm"] = ir.AttrInt64s("perm", joined)
    return True


def _reshape(node: ir.Node) -> bool:
    """Take out one to the shape there is; one after another reads what that one read."""
    x = operand(node, 0)
    sizes = integers_of(operand(node, 1)) if len(node.inputs) > 1 else None
    if x is None or sizes is None:
        return False
    allow_zero = attribute(node, "allowzero", 0)
    if _is_shape_of(sizes, x, allow_zero):
        return _drop(node)
    before = x.producer()
    flattens = before is not None and before.op_type in ("Reshape", "Flatten")
    if before is None or not flattens or before.domain or 0 in sizes:
        return False
    origin = operand(before, 0)
    if origin is None:
        return False
    if _is_shape_of(sizes, origin, allow_zero):
        return bypass(node, origin)
    # Reshaping what was expanded copies it, which is better said once: heads are repeated so.
    maker = origin.producer()
    expanded = maker is not None and maker.op_type == "Expand"
    if expanded or x.is_graph_output() or len(x.uses()) > 1:
        return False
    node.replace_input_with(0, origin)
    return True


def _is_shape_of(sizes: tuple[int, ...], x: ir.Value, allow_zero: int) -> bool:
    """Return whether a Reshape to these sizes leaves x as it is, or the run refuses it."""
    known = sizes_of(x)
    if ANY in known[:1] or len(known) != len(sizes) or (allow_zero and 0 in sizes):
        return False
    if -1 in sizes:  # The rest is what is there if the others are; beside a 0 it is no number.
        others = [axis for axis, size in enumerate(sizes) if size != -1]
        if len(others) < len(sizes) - 1 or not all(known[axis] for axis in others):
            return False
    return all(size in (0, -1, there) for size, there in zip(sizes, known, strict=True))


def _known(value: ir.Value) -> tuple[int, ...] | None:
    """Return a shape that is known to the last size, whatever a file says of values between."""
    sizes = sizes_of(value)
    known = tuple(size for size in sizes if size is not None)
    return known if len(known) == len(sizes) and ANY not in known else None


def _expand(node: ir.Node) -> bool:
    x = operand(node, 0)
    sizes = integers_of(operand(node, 1))
    if x is not None and _meets_its_shape(node):
        return _drop(node)
    if x is None or sizes is None:
        return False
    shape = _known(x)
    ones = all(size == 1 for size in sizes)
    if shape is None:
        rank = rank_of(x)
        return ones and rank is not None and len(sizes) <= rank and _drop(node)
    # Sizes that do not broadcast are for the run to refuse.
    fits = len(sizes) <= len(shape) and all(
        size in (1, known) for size, known in zip(sizes[::-1], shape[::-1], strict=False)
    )
    return fits and _drop(node)


def _meets_its_shape(node: ir.Node) -> bool:
    """Return whether all readers broadcast with the very value that gives an Expand its shape."""
    maker = None if (shape := operand(node, 1)) is None else shape.producer()
    if maker is None or maker.op_type != "Shape" or maker.domain or maker.attributes:
        return False
    like, output = operand(maker, 0), node.outputs[0]
    uses = tuple(output.uses())
    return (
        bool(uses)
        and not output.is_graph_output()
        and all(
            use.node.op_type in BROADCASTING
            and not use.node.domain
            and (use.node.version or 1) >= 7
            and any(value is like for value in use.node.inputs)
            for use in uses
        )
    )


def _single(node: ir.Node) -> bool:
    return len(node.inputs) == 1 and _drop(node)


def _tile(node: ir.Node) -> bool:
    repeats = integers_of(operand(node, 1)) if len(node.inputs) == 2 else None
    return repeats is not None and all(count == 1 for count in repeats) and _drop(node)


def _pad(node: ir.Node) -> bool:
    pads = attribute(node, "pads", None)
    if (node.version or 1) >= 11:
        pads = integers_of(operand(node, 1)) if len(node.inputs) > 1 else None
    return pads is not None and not any(pads) and _drop(node)


def _slice(node: ir.Node) -> bool:
    """Take out one from the beginning to the end of its axes."""
    if (node.version or 1) < 10:
        return False
    starts, ends, steps = (
        integers_of(node.inputs[n]) if len(node.inputs) > n and node.inputs[n] is not None else ()
        for n in (1, 2, 4)
    )
    if starts is None or not ends or steps is None or any(starts) or any(s != 1 for s in steps):
        return False
    return all(end >= np.iinfo(np.int32).max for end in ends) and _drop(node)


def _unsqueeze(node: ir.Node) -> bool:
    """Take out one that undoes the Squeeze, or Unsqueeze, before it."""
    x = operand(node, 0)
    before = None if x is None else x.producer()
    opposite = "Squeeze" if node.op_type == "Unsqueeze" else "Unsqueeze"
    if before is None or before.op_type != opposite or before.domain:
        return False
    axes, others, origin = _axes(node), _axes(before), operand(before, 0)
    if not axes or axes != others or min(axes) < 0 or origin is None:
        return False
    return bypass(node, origin)


def _axes(node: ir.Node) -> tuple[int, ...] | None:
    if (node.version or 1) < 13:
        given = attribute(node, "axes", None)
        return None if given is None else tuple(given)
    return integers_of(operand(node, 1)) if len(node.inputs) > 1 else None


def _neutral(node: ir.Node) -> bool:
    """Take out sums with 0 and products with 1, of one constant element of no axes."""
    if (node.version or 1) < 7:
        return False
    neutral = 0 if node.op_type in ("Add", "Sub") else 1
    for position in (1, 0) if node.op_type in ("Add", "Mul") else (1,):
        value, other = operand(node, position), operand(node, 1 - position)
        weight = weight_of(value)
        if weight is None or weight.shape != () or other is None:
            continue
        number = array_of(value)
        # -0.0 + 0.0 is 0.0, which equals it.
        if number is not None and number.dtype.kind != "O" and number == neutral:
            return not isinstance(other.const_value, WeightTensor) and bypass(node, other)
    return False


# Coordinate transformations by which, at an unchanged size, each pixel comes from itself alone.
IDENTITY_TRANSFORMS = (
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "asymmetric",
    "align_corners",
)


def _resize(node: ir.Node) -> bool:
    """Take out one to the size there is."""
    x, told = operand(node, 0), [operand(node, position) for position in (2, 3)]
    if (
        x is None
        or attribute(node, "coordinate_transformation_mode", "half_pixel")
        not in IDENTITY_TRANSFORMS
    ):
        return False
    scales = array_of(told[0])
    if scales is not None and scales.size:
        return bool((scales == 1).all()) and _drop(node)
    sizes = integers_of(told[1])
    whole = sizes is not None and "axes" not in node.attributes and (node.version or 1) >= 11
    return whole and _known(x) == sizes and _drop(node)


# By operator, a function that takes a node out if it can go, and returns whether it did.
VISITS: dict[str, Callable[[ir.Node], bool]] = {
    "Identity": _identity,
    "Dropout": _dropout,
    "Transpose": _transpose,
    "Reshape": _reshape,
    "Expand": _expand,
    "Resize": _resize,
    "Concat": _single,
    "Sum": _single,
    "Max": _single,
    "Min": _single,
    "Mean": _single,
    "Tile": _tile,
    "Pad": _pad,
    "Slice": _slice,
    "Squeeze": _unsqueeze,
    "Unsqueeze": _unsqueeze,
    "Add": _neutral,
    "Sub": _neutral,
    "Mul": _neutral,
    "Div": _neutral,
}
