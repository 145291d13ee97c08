"""Nodes that OpenVINO accepts but computes differently from ONNX, by its conformance suite."""

from __future__ import annotations

import onnx_ir as ir

WRONG = "its results differ from ONNX's"
WITHOUT = frozenset(
    """
    Attention BitShift DFT Dropout DynamicQuantizeLinear PRelu QuantizeLinear Resize RoiAlign
    Softplus
    """.split()  # noqa: SIM905 - a list would be a page
)
# The only value of an attribute, or of all its elements, that gives ONNX's results.
ONLY: dict[tuple[str, str], object] = {
    ("GRU", "layout"): 0,
    ("LSTM", "layout"): 0,
    ("MaxPool", "ceil_mode"): 0,
    ("MaxPool", "dilations"): 1,
    ("RNN", "layout"): 0,
    ("SpaceToDepth", "mode"): "DCR",
    ("Split", "num_outputs"): None,
}


def declined(node: ir.Node) -> str | None:
    """Return why a node stays with other providers although OpenVINO accepts it."""
    if node.op_type in WITHOUT:
        return WRONG
    for name, attribute in node.attributes.items():
        key, given = (node.op_type, name), attribute.value
        if key in ONLY and set(given if isinstance(given, (list, tuple)) else (given,)) != {
            ONLY[key]
        }:
            return f"with {name}={given} {WRONG}"
    types = {value.dtype for value in node.inputs if value is not None}
    if node.op_type == "Div" and types & {ir.DataType.INT8, ir.DataType.UINT8}:
        return f"for bytes {WRONG}"
    return None
