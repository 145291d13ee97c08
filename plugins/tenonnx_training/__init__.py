"""Gradients: ``ai.onnx.preview.training::Gradient`` becomes the nodes that compute it."""

from __future__ import annotations

from collections.abc import Callable

from tenonnx import Transform, hookimpl


@hookimpl
def register_transforms(register: Callable[[Transform], None]) -> None:
    """Announce the lowering; no kernel can run the operator, so it is required."""
    from tenonnx_training.gradient import lower_gradients

    register(Transform("lower-gradients", lower_gradients, level="required"))
