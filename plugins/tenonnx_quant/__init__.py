"""Quantized models: made by ``tenonnx quantize``, and run with weights read as they are stored."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tenonnx import OperatorTable, Transform, hookimpl

if TYPE_CHECKING:
    import typer

    from tenonnx.hookspecs import RegisterCommands, RegisterOperators
    from tenonnx_quant.dynamic import DynamicScheme
    from tenonnx_quant.quantize import (
        Report,
        quantize_dynamic,
        quantize_static,
        quantize_weights,
    )
    from tenonnx_quant.selection import Selection
    from tenonnx_quant.static import StaticScheme
    from tenonnx_quant.weight_only import WeightScheme

# The modules of public names; one is imported when it is used, as models rarely are made.
_HOMES = {
    "DynamicScheme": "dynamic",
    "Report": "quantize",
    "Selection": "selection",
    "StaticScheme": "static",
    "WeightScheme": "weight_only",
    "quantize_dynamic": "quantize",
    "quantize_static": "quantize",
    "quantize_weights": "quantize",
}

__all__ = [
    "DynamicScheme",
    "Report",
    "Selection",
    "StaticScheme",
    "WeightScheme",
    "quantize_dynamic",
    "quantize_static",
    "quantize_weights",
]


# The module of the fused operator.
KERNEL_LISTING = {"kernels": "ai.tenonnx::DequantizeMatMul-1"}


@hookimpl
def register_transforms(register: Callable[[Transform], None]) -> None:
    """Announce the transforms; all but the first run once constants are folded."""
    apply = Transform.later("tenonnx_quant.casts:dequantize_casts")
    needs: tuple[Any, ...] = (("Cast", "DequantizeLinear"), ("MatMul", "Gemm", "Gather"))
    register(Transform("dequantize-casts", apply, "basic", order=18, needs=needs))
    apply = Transform.later("tenonnx_quant.moves:move_codes")
    needs = ("DequantizeLinear", "QuantizeLinear")
    register(Transform("move-codes", apply, "basic", order=25, needs=needs))
    apply = Transform.later("tenonnx_quant.fuse:fuse_dequantize_matmul")
    needs = ("DequantizeLinear", ("MatMul", "Gemm"))
    register(Transform("fuse-dequantize-matmul", apply, "basic", order=40, needs=needs))


@hookimpl
def register_operators(register: RegisterOperators) -> None:
    """Add the fused operator to every provider that takes kernels."""
    register(OperatorTable.listed(__name__, KERNEL_LISTING))


@hookimpl
def register_commands(register: RegisterCommands) -> None:
    """Add ``tenonnx quantize``; typer is imported when the command line asks for it."""
    register(_application)


def _application() -> typer.Typer:
    from tenonnx.cli import subcommands

    return subcommands(quantize="tenonnx_quant.command")()


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'tenonnx_quant' has no attribute {name!r}")
    return getattr(importlib.import_module(f"tenonnx_quant.{_HOMES[name]}"), name)
