"""Caches that stay in place, in decoders whose attention returns longer ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from tenonnx import TransformContext
from tenonnx.graph import attribute, nodes, replace_uses
from tenonnx.graph.sizes import integers_of, last_of, operand, rank_of
from tenonnx_fuse import MICROSOFT

# The session entry that asks for it.
CACHES_IN_PLACE_ENTRY = "tenonnx.caches_in_place"

# The inputs that the graph gets: which tokens there are, and the places of the new ones.
MASK, POSITIONS = "attention_mask", "position_ids"

LENGTH_TYPES = (ir.DataType.INT32, ir.DataType.INT64)

# Inputs of MultiHeadAttention that are caches; the ones after them say where they lie.
PASTS = (6, 7)


def caches_in_place(model: ir.Model, context: TransformContext) -> bool:
    """Write MultiHeadAttention with caches as GroupQueryAttention, if the entry is ``1``.

    The former returns caches that are longer by the new tokens, copied at each run; the latter
    writes the new tokens into caches as long as they may become. The length of a cache then says
    nothing: the graph gets the inputs ``attention_mask`` [rows, tokens] and ``position_ids``
    [rows, new tokens], and takes the rows of a table of positions by the latter. All or nothing:
    a graph that uses the length otherwise stays as it is.
    """
    if context.option(CACHES_IN_PLACE_ENTRY) != "1":
        return False
    graph = model.graph
    made = (value for node in nodes(graph) for value in node.outputs)
    taken = {value.name for value in (*graph.inputs, *graph.initializers.values(), *made)}
    found = [node for node in nodes(graph) if _has_past(node)]
    ids = next((value for value in graph.inputs if _is_ids(value)), None)
    if not found or ids is None or taken & {MASK, POSITIONS} or not all(map(_is_plain, found)):
        return False
    if any(node.graph is not graph for node in found):  # in a branch or a loop
        return False
    caches = [value for node in found for value in (node.inputs[i] for i in PASTS)]
    rows = Lengths(caches, ids).rows()
    if rows is None:
        return False
    assert ids.shape is not None
    mask = _input(MASK, [ids.shape[0], "total_sequence_length"])
    graph.inputs.append(mask)
    if rows:
        positions = _input(POSITIONS, list(ids.shape))
        graph.inputs.append(positions)
        for node in rows:
            _replace(node, _made(node, "Gather", [node.inputs[0], positions], axis=0), 1)
    lengths = _lengths(found[0], mask)
    for node in found:
        heads = attribute(node, "num_heads", 0)
        attributes = {"num_heads": heads, "kv_num_heads": heads}
        if (scale := attribute(node, "scale", 0.0)) > 0:
            attributes["scale"] = scale
        given = [*node.inputs[:3], *(node.inputs[i] for i in PASTS), *lengths]
        _replace(node, _made(node, "GroupQueryAttention", given, MICROSOFT, 3, **attributes), 3)
    return True


class Lengths:
    """The values that a graph computes from the lengths of its caches.

    Args:
        caches: The caches.
        ids: The input that has the new tokens.
    """

    def __init__(self, caches: Sequence[ir.Value | None], ids: ir.Value) -> None:
        self._ids = ids
        self._known: dict[ir.Value, str] = {value: "cache" for value in caches if value is not None}

    def rows(self) -> list[ir.Node] | None:
        """Return the nodes that take the new tokens' rows of a table of positions.

        ``None`` if a length is used for something else.
        """
        slices: dict[ir.Node, None] = {}
        left = list(self._known)
        while left:
            for use in left.pop().uses():
                node = use.node
                if _has_past(node) and use.idx in PASTS:
                    continue
                if node.op_type == "Slice":
                    slices[node] = None
                elif (kind := self._kind(node)) is None:
                    return None
                elif node.outputs[0] not in self._known:
                    self._known[node.outputs[0]] = kind
                    left.append(node.outputs[0])
        return list(slices) if all(map(self._is_row, slices)) else None

    def _kind(self, node: ir.Node) -> str | None:
        """Return what a node makes of lengths: all sizes, the past's, or that of all tokens."""
        kinds = list(map(self._named, node.inputs))
        match node.op_type, kinds:
            case "Shape", ["cache"] if not node.attributes:
                return "sizes"
            case "Gather", ["sizes", ""] if _numbers(node.inputs[1]) == (2,):
                return "past"
            case "Unsqueeze", ["past" | "total" as kind, *_]:
                return kind
            case "Add", ["past", ""] if self._is_new(node.inputs[1]):
                return "total"
            case "Add", ["", "past"] if self._is_new(node.inputs[0]):
                return "total"
        return None

    def _is_new(self, value: ir.Value | None) -> bool:
        """Return whether a value is the number of new tokens."""
        gather = None if value is None else value.producer()
        if gather is None or gather.op_type != "Gather" or _numbers(gather.inputs[1]) != (1,):
            return False
        shape = None if gather.inputs[0] is None else gather.inputs[0].producer()
        return (
            shape is not None
            and shape.op_type == "Shape"
            and not shape.attributes
            and shape.inputs[0] is self._ids
        )

    def _is_row(self, node: ir.Node) -> bool:
        """Return whether a slice is the rows of the new tokens, to be added to others."""
        if len(node.inputs) < 4:
            return False
        table, start, stop, axes, *steps = node.inputs
        row = node.outputs[0]
        return (
            table is not None
            and table.is_initializer()
            and rank_of(table) == 2
            and self._named(start) == "past"
            and self._named(stop) == "total"
            and _numbers(axes) == (0,)
            and all(step is None or _numbers(step) == (1,) for step in steps)
            and not row.is_graph_output()
            and all(use.node.op_type == "Add" for use in row.uses())
        )

    def _named(self, value: ir.Value | None) -> str:
        return "" if value is None else self._known.get(value, "")


def _input(name: str, shape: list[Any]) -> ir.Value:
    return ir.Value(name=name, shape=ir.Shape(shape), type=ir.TensorType(ir.DataType.INT64))


def _is_ids(value: ir.Value) -> bool:
    return value.dtype in LENGTH_TYPES and value.shape is not None and len(value.shape) == 2


def _has_past(node: ir.Node) -> bool:
    """Return whether a node reads or returns caches."""
    attends = node.op_type == "MultiHeadAttention" and node.domain == MICROSOFT
    return attends and any(operand(node, i) is not None for i in PASTS)


def _is_plain(node: ir.Node) -> bool:
    """Return whether a node is causal, and both caches go through it and nothing else besides."""
    others = [*range(3, 6), *range(8, len(node.inputs))]
    pasts, presents = [operand(node, i) for i in PASTS], node.outputs[1:3]
    return (
        attribute(node, "unidirectional", 0) == 1
        and all(operand(node, i) is not None for i in range(3))
        and all(operand(node, i) is None for i in others)
        and all(rank_of(node.inputs[i]) in (3, None) for i in range(3))
        and all(value is not None and value.is_graph_input() for value in pasts)
        and last_of(pasts[0]) == last_of(pasts[1])
        and len(presents) == 2
        and all(value.is_graph_output() and not value.uses() for value in presents)
    )


def _numbers(value: ir.Value | None) -> tuple[int, ...] | None:
    """Return a constant list of integers, which may be of a node still."""
    node = None if value is None else value.producer()
    if node is None or node.op_type != "Constant":
        return integers_of(value)
    tensor = attribute(node, "value", None)
    if tensor is None or tensor.size > 1 or tensor.dtype not in LENGTH_TYPES:
        return None
    return (int(tensor.numpy().reshape(-1)[0]),) if tensor.size else ()


def _made(
    before: ir.Node,
    operator: str,
    inputs: Sequence[ir.Value | None],
    domain: str = "",
    outputs: int = 1,
    **attributes: Any,
) -> ir.Node:
    """Return a new node, which is put before another."""
    assert before.graph is not None
    version = 1 if domain else before.graph.opset_imports[""]
    node = ir.node(
        operator, inputs, attributes, domain=domain, num_outputs=outputs, version=version
    )
    before.prepend(node)
    return node


def _constant(before: ir.Node, value: Any) -> ir.Value:
    node = _made(before, "Constant", [], value=ir.tensor(np.array(value, np.int64)))
    return node.outputs[0]


def _lengths(before: ir.Node, mask: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Return what GroupQueryAttention takes of a mask: the last places, and how many there are."""
    one = _constant(before, [1])
    seen = _made(before, "ReduceSum", [mask, one], keepdims=0).outputs[0]
    last = _made(before, "Sub", [seen, one]).outputs[0]
    sizes = _made(before, "Shape", [mask]).outputs[0]
    total = _made(before, "Gather", [sizes, _constant(before, 1)]).outputs[0]
    whole = int(ir.DataType.INT32)
    casts = [_made(before, "Cast", [value], to=whole) for value in (last, total)]
    return casts[0].outputs[0], casts[1].outputs[0]


def _replace(old: ir.Node, new: ir.Node, outputs: int) -> None:
    """Have a new node's outputs stand where an old node's did, under their names."""
    graph = old.graph
    assert graph is not None
    for was, now in zip(old.outputs[:outputs], new.outputs[:outputs], strict=True):
        now.name, now.type, now.shape = was.name, was.type, was.shape
        for i, output in enumerate(graph.outputs):
            if output is was:
                graph.outputs[i] = now
        replace_uses(was, now)
    graph.remove(old, safe=True)
