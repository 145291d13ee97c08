"""JaxExecutionProvider: whole segments, traced once for each set of shapes and compiled by XLA."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tenonnx import Provider, hookimpl

if TYPE_CHECKING:
    from tenonnx.provider import LaterProvider


@hookimpl
def register_providers(register: Callable[[LaterProvider], None]) -> None:
    """Announce the provider; its module is imported for those who ask for it."""
    place = "tenonnx_jax.provider:JaxExecutionProvider"
    register(Provider.later(place, "JaxExecutionProvider", "jax"))
