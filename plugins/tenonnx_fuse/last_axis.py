"""How long values are along their last axis, as weights tell even where a model says nothing."""

from __future__ import annotations

import onnx_ir as ir

from tenonnx_fuse.known import MAX_DEPTH, SHAPE_KEEPING, attribute, integers_of, operand, weight_of

BROADCASTING = frozenset({"Add", "Div", "Max", "Min", "Mul", "Pow", "Sub", "Sum"})

MICROSOFT = frozenset(
    {
        "BiasGelu", "FastGelu", "Gelu", "QuickGelu", "SkipLayerNormalization",
        "SkipSimplifiedLayerNormalization",
    }
)  # fmt: skip
"""Those of com.microsoft whose result has their first input's shape."""


def last_of(value: ir.Value | None, depth: int = MAX_DEPTH) -> int | None:
    """Returns the length of a value's last axis, if it is known whatever the inputs are."""
    if value is None or depth == 0:
        return None
    node = value.producer()
    followed = None if node is None or node.outputs[0] is not value else _made(node, depth)
    if followed is not None:
        return followed
    shape = weight.shape if (weight := weight_of(value)) is not None else value.shape
    is_known = shape is not None and len(shape) and isinstance(shape[-1], int)
    return int(shape[-1]) if shape is not None and is_known else None  # type: ignore[arg-type]  # it is


def _made(node: ir.Node, depth: int) -> int | None:
    """Returns that of what a node makes, as it follows from what the node reads."""
    if node.domain:
        return _of_others(node, depth)
    kind = node.op_type
    if kind in SHAPE_KEEPING:
        return last_of(operand(node, 0), depth - 1)
    if kind in BROADCASTING:
        # What is longer than 1 is as long as the result, or the run refuses it.
        found = [last_of(each, depth - 1) for each in reversed(node.inputs)]
        longer = [size for size in found if size is not None and size != 1]
        return longer[0] if longer else 1 if None not in found else None
    if kind == "MatMul":
        matrix = weight_of(operand(node, 1))
        is_matrix = matrix is not None and len(matrix.shape) > 1
        return last_of(operand(node, 1), depth - 1) if is_matrix else None
    if kind == "Gemm":
        matrix = weight_of(operand(node, 1))
        return None if matrix is None else matrix.shape[0 if attribute(node, "transB", 0) else -1]
    if kind == "Gather":
        table = weight_of(operand(node, 0))
        is_rows = table is not None and len(table.shape) == 2 and not attribute(node, "axis", 0)
        return table.shape[-1] if table is not None and is_rows else None
    if kind == "Reshape":
        sizes = integers_of(operand(node, 1))
        return sizes[-1] if sizes and sizes[-1] > 0 else None
    return None


def _of_others(node: ir.Node, depth: int) -> int | None:
    if node.op_type == "MatMulNBits":
        return int(attribute(node, "N", 0)) or None
    if node.op_type == "DequantizeMatMul":
        side = "rows" if attribute(node, "transposed", 0) else "columns"
        return int(attribute(node, side, 0)) or None
    return last_of(operand(node, 0), depth - 1) if node.op_type in MICROSOFT else None
