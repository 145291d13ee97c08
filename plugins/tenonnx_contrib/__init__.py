"""Operators of the domain ``com.microsoft``, which onnxruntime's optimizer and exporters emit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenonnx import OperatorTable, hookimpl
from tenonnx_contrib.listing import LISTING

if TYPE_CHECKING:
    from tenonnx.hookspecs import RegisterOperators


@hookimpl
def register_operators(register: RegisterOperators) -> None:
    """Add the operators to every provider that takes kernels."""
    register(OperatorTable.listed(__name__, LISTING, "com.microsoft"))
