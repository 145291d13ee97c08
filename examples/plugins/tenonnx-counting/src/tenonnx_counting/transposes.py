"""Two Transposes in a row become one, or none if the second undoes the first."""

from __future__ import annotations

import onnx_ir as ir

import tenonnx


def merge_transposes(model: ir.Model, context: tenonnx.TransformContext) -> bool:
    """Merge every Transpose into the one that it reads from; return whether there were any."""
    del context
    return sum(_merge(node) for graph in model.graphs() for node in graph) > 0


def _merge(second: ir.Node) -> bool:
    first = _previous(second)
    if first is None:
        return False
    source, between, result = first.inputs[0], first.outputs[0], second.outputs[0]
    assert source is not None
    order = _compose(first, second)
    undone = order == sorted(order)
    if undone and not result.is_graph_output():
        ir.convenience.replace_all_uses_with(result, source)
        _remove(second)
    elif undone:
        # The output keeps its name, which is the caller's.
        second.replace_input_with(0, source)
        second.op_type = "Identity"
        second.attributes.pop("perm", None)
    else:
        second.replace_input_with(0, source)
        second.attributes["perm"] = ir.AttrInt64s("perm", order)
    if not between.uses() and not between.is_graph_output():
        _remove(first)
    return True


def _previous(node: ir.Node) -> ir.Node | None:
    """Return the Transpose that a Transpose of the same graph reads from."""
    if not _is_transpose(node) or node.inputs[0] is None:
        return None
    producer = node.inputs[0].producer()
    if producer is None or producer.graph is not node.graph:
        return None
    return producer if _is_transpose(producer) else None


def _is_transpose(node: ir.Node) -> bool:
    return node.domain == "" and node.op_type == "Transpose"


def _compose(first: ir.Node, second: ir.Node) -> list[int]:
    """Return the order of axes of both; ``[]``, the identity, if neither says its own."""
    one, two = _order(first), _order(second)
    one = one or [*reversed(range(len(two)))]
    two = two or [*reversed(range(len(one)))]
    return [one[axis] for axis in two]


def _order(node: ir.Node) -> list[int]:
    perm = node.attributes.get("perm")
    return [] if perm is None else list(perm.as_ints())


def _remove(node: ir.Node) -> None:
    assert isinstance(node.graph, ir.Graph)
    node.graph.remove(node, safe=True)
