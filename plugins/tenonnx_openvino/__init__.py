"""OpenVINOExecutionProvider: hands the segments that OpenVINO runs over to it."""

from __future__ import annotations

from collections.abc import Callable

from tenonnx import Provider, hookimpl


@hookimpl
def register_providers(register: Callable[[type[Provider]], None]) -> None:
    """Announce the provider; openvino is imported when it is first asked about a node."""
    from tenonnx_openvino.provider import OpenVINOExecutionProvider

    register(OpenVINOExecutionProvider)
