"""Nodes with the same operator, attributes and inputs are computed once."""

from __future__ import annotations

from collections.abc import Hashable

import onnx_ir as ir

from tenonnx import TransformContext
from tenonnx.graph import array_of, graphs, is_control_flow, replace_uses
from tenonnx.graph.traits import RANDOM
from tenonnx_fuse.known import weight_of

# Domains whose other operators are functions of their inputs; of strangers' that is not known.
PURE = frozenset({"", "ai.onnx.ml", "ai.tenonnx"})

# Larger tensors of attributes are not compared by content.
MAX_COMPARED_BYTES = 1024


def share_subexpressions(model: ir.Model, context: TransformContext) -> bool:
    """Drop every node that computes what one before it in its graph does.

    Constants are the same if they are the same weight of the registry, whatever their names;
    their bytes are not read.
    """
    dropped = sum(share(graph) for graph in graphs(model))
    if dropped:
        context.notes.append(f"matched {dropped} nodes that repeat another one")
    return dropped > 0


def share(graph: ir.Graph) -> int:
    """Do it in one graph; return how many nodes are gone."""
    seen: dict[Hashable, ir.Node] = {}
    dropped = 0
    for node in tuple(graph):
        if node.domain not in PURE or is_control_flow(node) or node.op_type in RANDOM:
            continue
        key = _key(node)
        if key is None:
            continue
        first = seen.setdefault(key, node)
        if first is node or any(value.is_graph_output() for value in node.outputs):
            continue
        _adopt(node, first)
        for output, kept in zip(node.outputs, first.outputs, strict=True):
            replace_uses(output, kept)
        graph.remove(node, safe=True)
        dropped += 1
    return dropped


def _adopt(node: ir.Node, first: ir.Node) -> None:
    """Keep what a dropped node knew of its outputs."""
    for old, kept in zip(node.outputs, first.outputs, strict=True):
        kept.type = kept.type or old.type
        kept.shape = kept.shape if kept.shape is not None else old.shape


def _key(node: ir.Node) -> Hashable | None:
    """Return what two nodes that compute the same have in common; ``None`` if it is unclear."""
    attributes: list[Hashable] = []
    for name, attribute in sorted(node.attributes.data.items()):
        content = attribute.value
        if attribute.type == ir.AttributeType.TENSOR:
            if content.nbytes > MAX_COMPARED_BYTES:
                return None
            array = array_of(content)
            content = (content.dtype, array.shape, repr(array.tolist()))
        elif isinstance(content, list | tuple):
            content = tuple(content)
        if not isinstance(content, Hashable):
            return None
        attributes.append((name, attribute.type, content))
    wanted = tuple(bool(output.name) for output in node.outputs)
    inputs = tuple(map(_identity, node.inputs))
    return node.domain, node.op_type, node.version, wanted, inputs, tuple(attributes)


def _identity(value: ir.Value | None) -> Hashable:
    weight = weight_of(value)
    return id(value) if weight is None else (id(weight), weight.shape, weight.strides)
