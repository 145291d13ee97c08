"""Matrix products with quantised weights, read as they are stored, with no dequantised copy."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tenonnx import Transform, hookimpl

if TYPE_CHECKING:
    from tenonnx.hookspecs import RegisterOperators

DOMAIN = "ai.tenonnx"
"""Where the fused operator lives; it is made by the transform and never found in a file."""


@hookimpl
def register_transforms(register: Callable[[Transform], None]) -> None:
    """Announce the transform; it runs once constants are folded."""
    from tenonnx_quant.fuse import fuse_dequantize_matmul

    register(Transform("fuse-dequantize-matmul", fuse_dequantize_matmul, "basic", order=40))


@hookimpl
def register_operators(register: RegisterOperators) -> None:
    """Add the fused operator to every provider that takes kernels."""
    from tenonnx_quant.kernels import table

    register(table)
