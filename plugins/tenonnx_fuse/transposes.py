"""Transposes that cancel out across what works element by element."""

from __future__ import annotations

from collections import Counter

import onnx_ir as ir

from tenonnx import HOST, TransformContext
from tenonnx.graph import graphs
from tenonnx_fuse.bypass import bypass, tell
from tenonnx_fuse.constants import derived
from tenonnx_fuse.known import operand, permutation, weight_of

UNARY = frozenset(
    {
        "Abs", "Cast", "Ceil", "Clip", "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid",
        "HardSwish", "LeakyRelu", "Log", "Neg", "Not", "Reciprocal", "Relu", "Round", "Sigmoid",
        "Sign", "Softplus", "Sqrt", "Swish", "Tanh",
    }
)  # fmt: skip
BINARY = frozenset({"Add", "And", "Div", "Equal", "Greater", "Less", "Max", "Min", "Mul", "Or",
                    "Pow", "Sub"})  # fmt: skip

MAX_NODES = 32
"""Nodes between two transposes that are looked at."""


def cancel_transposes(model: ir.Model, context: TransformContext) -> bool:
    """Takes out a Transpose if what it reads is elementwise of values that were turned before.

    The nodes between then read the values as they were before the first Transpose.
    """
    done: Counter[str] = Counter()
    for graph in graphs(model):
        for node in reversed(tuple(graph)):
            ours = node.op_type == "Transpose" and not node.domain and node.graph is graph
            if ours and len(node.outputs) == 1:
                _cancel(node, context, done)
    return tell(context, done)


def _cancel(node: ir.Node, context: TransformContext, done: Counter[str]) -> None:
    order, x = permutation(node), operand(node, 0)
    if order is None or x is None:
        return
    undone = tuple(order.index(axis) for axis in range(len(order)))
    between: dict[ir.Node, None] = {}
    if not _comes_from(x, undone, between) or not between:
        return
    for inner in reversed(between):
        _turn_back(inner, undone, context)
    if bypass(node, x):
        done["Transpose behind what is elementwise"] += 1
    elif (graph := node.graph) is not None:
        # A graph's output must keep its name and cannot be a graph's input.
        replacement = ir.node("Identity", [x], version=13)
        output, result = node.outputs[0], replacement.outputs[0]
        result.name, result.shape, result.type = output.name, output.shape, output.type
        output.name = None
        ir.convenience.replace_nodes_and_values(
            graph, node, [node], [replacement], [output], [result]
        )
        done["Transpose behind what is elementwise"] += 1


def _comes_from(value: ir.Value, order: tuple[int, ...], between: dict[ir.Node, None]) -> bool:
    """Says whether a value is elementwise of values turned to an order; collects the nodes."""
    node = value.producer()
    if node is None or node.domain or len(between) >= MAX_NODES:
        return False
    if node.op_type == "Transpose":
        return permutation(node) == order and operand(node, 0) is not None
    if value.is_graph_output() or any(use.node.graph is not node.graph for use in value.uses()):
        return False
    if len(value.uses()) != 1 or node.op_type not in UNARY | BINARY or (node.version or 1) < 7:
        return False
    between[node] = None
    operands = node.inputs if node.op_type in BINARY else node.inputs[:1]
    turned = 0
    for source in operands:
        if source is None or _broadcasts(source, len(order)):
            continue
        if not _comes_from(source, order, between):
            return False
        turned += 1
    return turned > 0


def _broadcasts(value: ir.Value, rank: int) -> bool:
    """Says whether a constant is one element, or has every axis and can be turned itself."""
    weight = weight_of(value)
    if weight is None:
        return False
    return weight.shape in ((), (1,)) or len(weight.shape) == rank


def _turn_back(node: ir.Node, order: tuple[int, ...], context: TransformContext) -> None:
    """Lets a node read its operands as they were before they were turned to an order."""
    back = tuple(order.index(axis) for axis in range(len(order)))
    for position, value in enumerate(node.inputs):
        maker = None if value is None else value.producer()
        if maker is not None and maker.op_type == "Transpose" and not maker.domain:
            node.replace_input_with(position, operand(maker, 0))
        weight = weight_of(value)
        if weight is not None and value is not None and len(weight.shape) == len(order) > 1:
            node.replace_input_with(position, _turned_constant(node, value, back, context))
    output = node.outputs[0]
    if output.shape is not None:
        output.shape = ir.Shape([output.shape[axis] for axis in back])


def _turned_constant(
    node: ir.Node, value: ir.Value, order: tuple[int, ...], context: TransformContext
) -> ir.Value:
    weight = weight_of(value)
    assert weight is not None
    name = f"{value.name}/{','.join(map(str, order))}"
    key = f"turned-1:{order}:{weight.key}"
    return derived(
        node.graph, name, key, lambda: weight.on(HOST).transpose(order), [weight], context
    )
