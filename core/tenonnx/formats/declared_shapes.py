"""The shapes that a file declares. Numbers that are no sizes are ignored, as in onnxruntime."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenonnx.graph import graphs
from tenonnx.graph.type_names import SCALAR

if TYPE_CHECKING:
    import onnx_ir as ir


def forget_unknown_sizes(model: ir.Model) -> None:
    """Have no value declare a size below zero, and no input of the model rank 0.

    Exporters write -1 for a size that they do not know, and an empty list of sizes for a shape:
    onnxruntime takes any size, and any rank. Whoever reads a shape later may believe it.
    """
    for value in model.graph.inputs:
        if value.shape is not None and not len(value.shape):
            value.shape = None
            value.meta[SCALAR] = True
    for graph in graphs(model):
        for value in (*graph.inputs, *graph.outputs):
            _forget(value)
        for node in graph:
            for value in node.outputs:
                _forget(value)


def _forget(value: ir.Value) -> None:
    shape = value.shape
    if shape is None:
        return
    unknown = [
        axis
        for axis, size in enumerate(shape.dims)
        if (size < 0 if isinstance(size, int) else size.value == "")
    ]
    if unknown:
        value.shape = shape = shape.copy()
        for axis in unknown:
            shape[axis] = None
