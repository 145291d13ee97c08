"""The transform: OpenVINO runs nothing of unknown rank, and most models do not say theirs."""

from __future__ import annotations

import onnx_ir as ir

from tenonnx.inference import infer_types


def infer_ranks(model: ir.Model) -> bool:
    """Writes the inferred types and shapes into a model that OpenVINO is to run.

    A model of which nothing can be inferred stays as it is: OpenVINO then runs what it can.
    """
    if all(output.shape is not None for node in model.graph for output in node.outputs):
        return False
    infer_types(model)
    return True
