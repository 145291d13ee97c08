"""Operators of the domain ``com.microsoft``, which onnxruntime's optimiser and exporters emit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tenonnx import hookimpl

if TYPE_CHECKING:
    from tenonnx.hookspecs import RegisterOperators

MODULES: Final = (
    "matmul_nbits",
    "gather_quantized",
    "skip_norm",
    "rotary",
    "group_query",
    "multi_head",
    "integer_product",
    "experts",
    "qlinear",
    "activations",
    "fused",
    "states",
    "delta_net",
    "branches",
    "sparse_attention",
    "paged_attention",
    "block_float",
    "nbits_layers",
    "quantised_lstm",
    "padding",
    "images",
    "tensors",
    "hashing",
    "words",
    "matching",
    "greedy_search",
    "beam_search",
    "whisper_search",
)


@hookimpl
def register_operators(register: RegisterOperators) -> None:
    """Add the operators to every provider that takes kernels."""
    import importlib

    for name in MODULES:
        register(importlib.import_module(f"tenonnx_contrib.{name}").table)
