"""JaxExecutionProvider: whole segments, traced once for each set of shapes and compiled by XLA."""

from __future__ import annotations

from collections.abc import Callable

from tenonnx import Provider, hookimpl


@hookimpl
def register_providers(register: Callable[[type[Provider]], None]) -> None:
    """Announce the provider; jax is imported when it compiles something."""
    from tenonnx_jax.provider import JaxExecutionProvider

    register(JaxExecutionProvider)
