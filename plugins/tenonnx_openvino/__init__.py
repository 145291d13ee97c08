"""OpenVINOExecutionProvider: runs the segments that OpenVINO can run."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tenonnx import Provider, Transform, hookimpl

if TYPE_CHECKING:
    import onnx_ir as ir

    from tenonnx import TransformContext
    from tenonnx.provider import LaterProvider


@hookimpl
def register_providers(register: Callable[[LaterProvider], None]) -> None:
    """Announce the provider; its module is imported for those who ask for it."""
    place = "tenonnx_openvino.provider:OpenVINOExecutionProvider"
    register(Provider.later(place, "OpenVINOExecutionProvider", "openvino"))


@hookimpl
def register_transforms(register: Callable[[Transform], None]) -> None:
    """Add the transform that infers ranks, without which OpenVINO runs nothing; it comes last."""
    register(Transform("openvino-ranks", _infer_ranks, level="basic", order=2000))


def _infer_ranks(model: ir.Model, context: TransformContext) -> bool:
    if not any(provider.name == "OpenVINOExecutionProvider" for provider in context.providers):
        return False
    from tenonnx_openvino.ranks import infer_ranks

    return infer_ranks(model)
