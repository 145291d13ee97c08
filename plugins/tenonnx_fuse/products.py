"""Products of matrices: with what is added to them, and with operands that are transposed."""

from __future__ import annotations

import onnx_ir as ir

from tenonnx import TransformContext
from tenonnx.graph.sizes import last_of, operand, rank_of
from tenonnx_fuse.known import attribute, permutation, weight_of
from tenonnx_fuse.pattern import Match, Vector, op
from tenonnx_fuse.rewrite import Rule, rewriting


def _is_matrix(x: ir.Value | None) -> bool:
    return rank_of(x) == 2


def _gemm(found: Match, _: TransformContext) -> list[ir.Node] | str:
    x, y, bias = (found.values[name] for name in ("x", "y", "bias"))
    for value in (x, y):
        if not _is_matrix(value):
            rank = rank_of(value)
            return f"'{value.name}' is no matrix; its number of axes is {rank or 'not known'}"
    vector = weight_of(bias)
    if vector is not None and vector.shape[0] not in (1, last_of(y)):
        return f"'{y.name}' is not known to have {vector.shape[0]} columns, as the bias has"
    return [ir.node("Gemm", [x, y, bias], version=13)]


def _swaps(node: ir.Node) -> str | None:
    order = permutation(node)
    return None if order == (1, 0) else f"moves the axes to {order}"


def _of_transposed(found: Match, _: TransformContext) -> list[ir.Node] | str:
    """Have Gemm read a matrix as it is stored, along its columns."""
    node = found.last
    if node.op_type == "Gemm":
        turns = {"transA": attribute(node, "transA", 0), "transB": attribute(node, "transB", 0)}
    elif all(map(_is_matrix, node.inputs)):
        turns = {"transA": 0, "transB": 0}
    else:
        return "one operand has more than two axes"
    inputs = list(node.inputs)
    if len(inputs) < 2:
        return "it has one operand"
    for position, name in enumerate(turns):
        value = inputs[position]
        maker = None if value is None else value.producer()
        if maker is not None and maker in found.nodes:
            inputs[position] = operand(maker, 0)
            turns[name] = 1 - turns[name]
    kept = {name: attribute(node, name, 1.0) for name in ("alpha", "beta")}
    version = node.version if node.op_type == "Gemm" else 13
    return [ir.node("Gemm", inputs, {**kept, **turns}, version=version)]


TURNED = op("Transpose", "turned", where=_swaps)
PRODUCT_OPERATORS = ("Gemm", "MatMul")

matmul_add = rewriting(
    Rule("Gemm", op("Add", op("MatMul", "x", "y"), Vector("bias")), _gemm, needs=("Add", "MatMul"))
)
fold_transposes = rewriting(
    Rule(
        "of A transposed",
        op(PRODUCT_OPERATORS, TURNED, more=True),
        _of_transposed,
        frees=True,
        needs=("Transpose",),
    ),
    Rule(
        "of B transposed",
        op(PRODUCT_OPERATORS, "x", TURNED, more=True),
        _of_transposed,
        frees=True,
        needs=("Transpose",),
    ),
)
