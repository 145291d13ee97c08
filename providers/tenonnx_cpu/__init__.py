"""CPUExecutionProvider: ONNX on numpy."""

from __future__ import annotations

from collections.abc import Callable

from tenonnx.hookspecs import hookimpl
from tenonnx.provider import Provider


@hookimpl
def register_providers(register: Callable[[type[Provider]], None]) -> None:
    """Announce the CPU provider."""
    from tenonnx_cpu.provider import CPUExecutionProvider

    register(CPUExecutionProvider)
