"""CUDAExecutionProvider: ONNX on NVIDIA GPUs, by way of cupy."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tenonnx.hookspecs import hookimpl
from tenonnx.provider import Provider

if TYPE_CHECKING:
    from tenonnx.provider import LaterProvider


@hookimpl
def register_providers(register: Callable[[LaterProvider], None]) -> None:
    """Announce the provider; its module is imported for those who ask for it."""
    place = "tenonnx_cuda.provider:CUDAExecutionProvider"
    register(Provider.later(place, "CUDAExecutionProvider", "cuda", "gpu"))
