"""A model so small that whoever cannot run it cannot run anything."""

from __future__ import annotations

import onnx_ir as ir


def tiny_model(operator: str = "Add") -> bytes:
    """Return ``y = operator(x, x)`` over float32 vectors, or square matrices for ``MatMul``."""
    kind = ir.TensorType(ir.DataType.FLOAT)
    shape = ir.Shape(["n", "n"] if operator == "MatMul" else ["n"])
    x = ir.Value(name="x", type=kind, shape=shape)
    y = ir.Value(name="y", type=kind, shape=shape)
    node = ir.Node("", operator, [x, x], outputs=[y], name="only")
    graph = ir.Graph([x], [y], nodes=[node], opset_imports={"": 21}, name="tiny")
    return bytes(ir.to_proto(ir.Model(graph, ir_version=10)).SerializeToString())
