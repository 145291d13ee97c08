"""Matrices that are inputs, one for each row of a batch, where a caller wants that."""

from __future__ import annotations

import onnx_ir as ir

from tenonnx import TransformContext
from tenonnx.graph import array_of
from tenonnx.graph.sizes import rank_of

# The session entry that asks for it.
ROW_MATRICES_ENTRY = "tenonnx.row_matrices"


def row_matrices(model: ir.Model, context: TransformContext) -> bool:
    """Give matrices that are inputs an axis of rows, if ``tenonnx.row_matrices`` is ``1``.

    [rows, positions, width] times [width, rank] becomes a product with [rows, width, rank], or
    with [1, width, rank] for all rows: adapters of several requests, in one batch. Only inputs
    that are nothing but the right operands of such products change, and only those that are
    nothing or zeros unless they are given.
    """
    if context.option(ROW_MATRICES_ENTRY) != "1":
        return False
    found = [value for value in model.graph.inputs if _is_right_operand(value)]
    for value in found:
        assert value.shape is not None
        value.shape = ir.Shape([f"{value.name}_rows", *value.shape])
    return bool(found)


def _is_right_operand(value: ir.Value) -> bool:
    uses = list(value.uses())
    return (
        rank_of(value) == 2
        and bool(uses)
        and not value.is_graph_output()
        and all(use.idx == 1 and _has_rows(use.node) for use in uses)
        and (value.const_value is None or not array_of(value.const_value).any())
    )


def _has_rows(node: ir.Node) -> bool:
    left = node.inputs[0]
    return node.domain == "" and node.op_type == "MatMul" and rank_of(left) == 3
