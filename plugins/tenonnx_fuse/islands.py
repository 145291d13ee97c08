"""Islands of 16-bit floats between casts, computed in float32, which hosts are made for."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from tenonnx import HOST, TransformContext
from tenonnx_fuse.bypass import bypass
from tenonnx_fuse.constants import derived
from tenonnx_fuse.known import attribute, dtype_of, operand, weight_of

NARROW = (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)

MEMBERS = frozenset(
    {
        "Abs", "Add", "Clip", "Concat", "Cos", "Div", "Erf", "Exp", "Expand", "Gelu",
        "LayerNormalization", "LeakyRelu", "Log", "LogSoftmax", "MatMul", "Max", "Min", "Mul",
        "Neg", "Pow", "RMSNormalization", "Reciprocal", "ReduceMean", "ReduceSum", "Relu",
        "Reshape", "Sigmoid", "Sin", "Slice", "Softmax", "Sqrt", "Squeeze", "Sub", "Tanh",
        "Transpose", "Unsqueeze",
    }
)  # fmt: skip
"""Operators that take 16-bit floats and float32 alike, and give back what they take."""

MAX_ELEMENTS = 4096
"""Elements of a constant that are widened with the island around it."""


def widen_islands(model: ir.Model, context: TransformContext) -> bool:
    """Takes out the casts around nodes that no 16-bit value enters or leaves but through them."""
    count = 0
    for graph in tuple(model.graphs()):
        seen: set[ir.Node] = set()
        for node in tuple(graph):
            if node.graph is graph and node not in seen and _is_member(node):
                island = _island(node)
                seen |= island.keys()
                if why := _bridged(island):
                    if any(_source(v) for each in island for v in each.inputs if v is not None):
                        context.notes.append(f"nearly an island of {len(island)} nodes: {why}")
                else:
                    _widen(graph, island, context)
                    count += 1
    if count:
        context.notes.append(f"matched {count} islands of 16-bit floats between casts")
    return count > 0


def _is_member(node: ir.Node) -> bool:
    if node.domain or node.op_type not in MEMBERS or len(node.outputs) != 1:
        return False
    return dtype_of(node.outputs[0]) in NARROW


def _island(start: ir.Node) -> dict[ir.Node, None]:
    """Returns the nodes that are joined to one by 16-bit values."""
    island = {start: None}
    queue = [start]
    for node in queue:
        makers = (value.producer() for value in node.inputs if value is not None)
        readers = (use.node for use in node.outputs[0].uses())
        for other in (*makers, *readers):
            if other is not None and other not in island and _is_member(other):
                island[other] = None
                queue.append(other)
    return island


def _bridged(island: dict[ir.Node, None]) -> str | None:
    """Says what joins an island to other 16-bit values, if anything does."""
    for node in island:
        for value in node.inputs:
            if value is None or value.producer() in island or dtype_of(value) not in NARROW:
                continue
            weight = weight_of(value)
            if weight is not None and weight.array.size <= MAX_ELEMENTS:
                continue
            if _source(value) is None:
                return f"'{value.name}' is not cast from float32"
        output = node.outputs[0]
        if output.is_graph_output():
            return f"'{output.name}' is an output"
        for use in output.uses():
            if use.node not in island and not _widens(use.node):
                return f"'{output.name}' is read in 16 bits"
            if use.node.graph is not node.graph:
                return f"'{output.name}' is read in another graph"
    return None


def _source(value: ir.Value) -> ir.Value | None:
    node = value.producer()
    if node is None or node.op_type != "Cast" or node.domain:
        return None
    x = operand(node, 0)
    return x if dtype_of(x) == ir.DataType.FLOAT else None


def _widens(node: ir.Node) -> bool:
    return (
        node.op_type == "Cast"
        and not node.domain
        and attribute(node, "to", 0) == ir.DataType.FLOAT
        and not node.outputs[0].is_graph_output()
    )


def _widen(
    graph: ir.Graph | ir.Function, island: dict[ir.Node, None], context: TransformContext
) -> None:
    narrow = {node: [dtype_of(value) in NARROW for value in node.inputs] for node in island}
    for node in island:
        for position, value in enumerate(node.inputs):
            if value is None or value.producer() in island or not narrow[node][position]:
                continue
            wide = _source(value) or _widened(graph, value, context)
            node.replace_input_with(position, wide)
    for node in island:
        output = node.outputs[0]
        output.type = ir.TensorType(ir.DataType.FLOAT)
        for use in tuple(output.uses()):
            if use.node not in island:
                bypass(use.node, output)


def _widened(graph: ir.Graph | ir.Function, value: ir.Value, context: TransformContext) -> ir.Value:
    weight = weight_of(value)
    assert weight is not None
    key = f"widened-1:{weight.key}"
    return derived(
        graph,
        f"{value.name}/float32",
        key,
        lambda: weight.on(HOST).astype(np.float32),
        [weight],
        context,
    )
