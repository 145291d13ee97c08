"""A provider over an array library in one file: MLX, which follows the array API standard.

``tenonnx --plugin mlx_provider.py run model.onnx --provider mlx --provider cpu`` computes with MLX
what it has elements for; strings and the smallest floats are the CPU's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import tenonnx
from tenonnx_array.standard import StandardProvider

tenonnx_api = 1

# It has DOUBLE, too, and computes its functions with the precision of FLOAT.
ELEMENTS = "BOOL INT8 INT16 INT32 INT64 UINT8 UINT16 UINT32 UINT64 FLOAT16 BFLOAT16 FLOAT"


class MlxExecutionProvider(StandardProvider):
    """Runs operators on MLX's default device, which computes where a result is wanted."""

    name: ClassVar[str] = "MlxExecutionProvider"
    aliases: ClassVar[tuple[str, ...]] = ("mlx",)
    unasked: ClassVar[bool] = False
    namespace: ClassVar[str] = "mlx.core"
    install: ClassVar[str] = "'mlx[cpu]'"
    elements: ClassVar[frozenset[str] | None] = frozenset(ELEMENTS.split())
    without: ClassVar[dict[str, str]] = {
        "Bernoulli": "it draws other random numbers",
        "DFT": "its transforms round otherwise than ONNX's suite allows",
    }


@tenonnx.hookimpl
def register_providers(register: Callable[[type[tenonnx.Provider]], None]) -> None:
    """Announce the provider."""
    register(MlxExecutionProvider)
