"""An output for the last position alone, where a caller wants no other."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from tenonnx import TransformContext
from tenonnx.graph.sizes import rank_of

# The session entry that names the output.
LAST_ROW_ENTRY = "tenonnx.last_row"

# Operators that multiply each row of their first input by itself.
ROWWISE_PRODUCTS = {"MatMul", "MatMulNBits"}

# Operators that may stand between such a product and the output, with constants no larger than a
# row.
ROWWISE_OPERATORS = {"Add", "Cast", "Div", "Mul", "Tanh"}


def last_row(model: ir.Model, context: TransformContext) -> bool:
    """Compute the output that ``tenonnx.last_row`` names for the last position alone.

    Of [batch, positions, width], [batch, 1, width] is left: a prompt's logits are a product with
    the largest matrix of a language model, and but one row of them is read.
    """
    name = context.option(LAST_ROW_ENTRY)
    output = next((value for value in model.graph.outputs if value.name == name), None)
    if output is None or rank_of(output) != 3:
        return False
    chain = _chain(output)
    if chain is None:
        return False
    product = chain[-1]
    bounds = [_number(product, number) for number in (-1, np.iinfo(np.int64).max, 1)]
    last = ir.Node("", "Slice", [product.inputs[0], *bounds], version=13)
    product.prepend(last)
    product.replace_input_with(0, last.outputs[0])
    for node in chain:
        shape = node.outputs[0].shape
        if shape is not None and len(shape) == 3:
            node.outputs[0].shape = ir.Shape([shape[0], 1, shape[2]])
    return True


def _chain(output: ir.Value) -> list[ir.Node] | None:
    """Return the nodes that make an output, from the last one to the product."""
    chain: list[ir.Node] = []
    value: ir.Value | None = output
    while value is not None and (node := value.producer()) is not None:
        others = len(value.uses()) + value.is_graph_output()
        if others != 1 or len(node.outputs) != 1:
            return None
        chain.append(node)
        if node.op_type in ROWWISE_PRODUCTS:
            return chain if node.op_type == "MatMulNBits" or _is_matrix(node.inputs[1]) else None
        if node.op_type not in ROWWISE_OPERATORS:
            return None
        value = _carried(node)
    return None


def _is_matrix(value: ir.Value | None) -> bool:
    """Return whether an operand has no axis of positions."""
    return value is not None and rank_of(value) == 2


def _carried(node: ir.Node) -> ir.Value | None:
    """Return the operand that has positions, if the others are one number or one row."""
    carried = [value for value in node.inputs if value is not None and rank_of(value) not in (0, 1)]
    return carried[0] if len(carried) == 1 else None


def _number(product: ir.Node, number: int) -> ir.Value:
    node = ir.node("Constant", [], {"value": ir.tensor(np.array([number]))})
    product.prepend(node)
    made = node.outputs[0]
    made.type, made.shape = ir.TensorType(ir.DataType.INT64), ir.Shape([1])
    return made
