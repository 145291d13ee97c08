"""CUDAExecutionProvider: ONNX on NVIDIA GPUs, by way of cupy."""

from __future__ import annotations

from collections.abc import Callable

from tenonnx.hookspecs import hookimpl
from tenonnx.provider import Provider


@hookimpl
def register_providers(register: Callable[[type[Provider]], None]) -> None:
    """Announce the CUDA provider."""
    from tenonnx_cuda.provider import CUDAExecutionProvider

    register(CUDAExecutionProvider)
