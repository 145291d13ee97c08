"""Gradients: ``ai.onnx.preview.training::Gradient`` becomes the nodes that compute it."""

from __future__ import annotations

from collections.abc import Callable

from tenonnx import Transform, hookimpl


@hookimpl
def register_transforms(register: Callable[[Transform], None]) -> None:
    """Announce the lowering; no kernel can run the operator, so it is required."""
    needs = ("Gradient",)
    apply = Transform.later("tenonnx_training.gradient:lower_gradients")
    register(Transform("lower-gradients", apply, level="required", needs=needs))
