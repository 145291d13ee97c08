"""The transform: it infers ranks, which OpenVINO needs and most models do not declare."""

from __future__ import annotations

import onnx_ir as ir

from tenonnx.graph.inference import infer_types


def infer_ranks(model: ir.Model) -> bool:
    """Write the inferred types and shapes into a model for OpenVINO.

    A model without inferable types stays as it is, and OpenVINO runs the nodes that it can.
    """
    if all(output.shape is not None for node in model.graph for output in node.outputs):
        return False
    infer_types(model)
    return True
