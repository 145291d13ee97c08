"""Gradients: ``ai.onnx.preview.training::Gradient`` is replaced by nodes that compute it."""

from __future__ import annotations

from collections.abc import Callable

from tenonnx import Transform, hookimpl


@hookimpl
def register_transforms(register: Callable[[Transform], None]) -> None:
    """Announce the lowering; it is required, because no kernel runs the operator."""
    needs = ("Gradient",)
    apply = Transform.later("tenonnx_training.gradient:lower_gradients")
    register(Transform("lower-gradients", apply, level="required", needs=needs))
