"""A tenonnx plug-in that brings a provider, a transform and an operator.

Importing it is cheap: what it registers is imported when tenonnx asks for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tenonnx


@tenonnx.hookimpl
def register_providers(register: Callable[[type[tenonnx.Provider]], None]) -> None:
    """Announce the provider."""
    from tenonnx_counting.provider import CountingExecutionProvider

    register(CountingExecutionProvider)


@tenonnx.hookimpl
def register_transforms(register: Callable[[tenonnx.Transform], None]) -> None:
    """Announce the transform."""
    from tenonnx_counting.transposes import merge_transposes

    # Early: the transforms that come with tenonnx would leave it no Transposes in a row.
    register(tenonnx.Transform("merge-transposes", merge_transposes, level="extended", order=5))


@tenonnx.hookimpl
def register_operators(register: Callable[..., Any]) -> None:
    """Announce the operator, for every provider that takes kernels."""
    from tenonnx_counting.softcap import OPERATORS

    register(OPERATORS)
