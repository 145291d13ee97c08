"""OpenVINOExecutionProvider: hands the segments that OpenVINO runs over to it."""

from __future__ import annotations

from collections.abc import Callable

from tenonnx import Provider, Transform, hookimpl


@hookimpl
def register_providers(register: Callable[[type[Provider]], None]) -> None:
    """Announce the provider; openvino is imported when it is first asked about a node."""
    from tenonnx_openvino.provider import OpenVINOExecutionProvider

    register(OpenVINOExecutionProvider)


@hookimpl
def register_transforms(register: Callable[[Transform], None]) -> None:
    """Add what finds the ranks of values, without which OpenVINO runs nothing; it comes last."""
    from tenonnx_openvino.ranks import infer_ranks

    register(Transform("openvino-ranks", infer_ranks, level="basic", order=2000))
