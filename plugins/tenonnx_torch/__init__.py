"""TorchExecutionProvider: torch's own kernels, on the CPU or a GPU, optionally compiled."""

from __future__ import annotations

from collections.abc import Callable

from tenonnx import Provider, hookimpl


@hookimpl
def register_providers(register: Callable[[type[Provider]], None]) -> None:
    """Announce the provider; torch is imported when it compiles something."""
    from tenonnx_torch.provider import TorchExecutionProvider

    register(TorchExecutionProvider)
