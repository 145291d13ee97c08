"""A model so small that whoever cannot run it cannot run anything."""

from __future__ import annotations

import onnx_ir as ir


def tiny_model() -> bytes:
    """Returns ``y = x + x`` over float32 vectors of any length."""
    kind = ir.TensorType(ir.DataType.FLOAT)
    x = ir.Value(name="x", type=kind, shape=ir.Shape(["n"]))
    y = ir.Value(name="y", type=kind, shape=ir.Shape(["n"]))
    add = ir.Node("", "Add", [x, x], outputs=[y], name="add")
    graph = ir.Graph([x], [y], nodes=[add], opset_imports={"": 21}, name="tiny")
    return bytes(ir.to_proto(ir.Model(graph, ir_version=10)).SerializeToString())
