"""The transform: OpenVINO runs nothing of unknown rank, and most models do not say theirs."""

from __future__ import annotations

import onnx_ir as ir

from tenonnx import TransformContext


def infer_ranks(model: ir.Model, context: TransformContext) -> bool:
    """Writes the inferred types and shapes into a model that OpenVINO is to run.

    A model of which nothing can be inferred stays as it is: OpenVINO then runs what it can.
    """
    if not any(provider.name == "OpenVINOExecutionProvider" for provider in context.providers):
        return False
    if all(output.shape is not None for node in model.graph for output in node.outputs):
        return False
    from tenonnx.inference import infer_types  # which others do without

    infer_types(model)
    return True
