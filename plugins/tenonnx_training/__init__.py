"""Gradients: ``ai.onnx.preview.training::Gradient`` becomes the nodes that compute it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tenonnx import Transform, hookimpl

if TYPE_CHECKING:
    import onnx_ir as ir

    from tenonnx import TransformContext


@hookimpl
def register_transforms(register: Callable[[Transform], None]) -> None:
    """Announce the lowering; no kernel can run the operator, so it is required."""
    needs = ("Gradient",)
    register(Transform("lower-gradients", _lower_gradients, level="required", needs=needs))


def _lower_gradients(model: ir.Model, context: TransformContext) -> bool:
    """Imports the rules for the first model that asks for a gradient."""
    from tenonnx_training.gradient import lower_gradients

    return lower_gradients(model, context)
