"""A provider over an array library in one file: dask, which cuts arrays into blocks.

``tenonnx --plugin dask_provider.py run model.onnx --provider dask --provider cpu`` computes with
dask's scheduler what dask has by numpy's names and with numpy's types; the rest is the CPU's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar, Literal

import tenonnx
from tenonnx_array.provider import ArrayProvider

if TYPE_CHECKING:
    import onnx_ir as ir

tenonnx_api = 1

OPERATORS = frozenset(
    """
    Abs Add Ceil Concat Cos Div Equal Erf Exp Flatten Floor Gemm Greater Less Log MatMul Mul Neg
    Pow ReduceMean ReduceSum Relu Reshape Sigmoid Sin Softmax Sqrt Sub Tanh
    """.split()  # noqa: SIM905 - a list would be a page
)


class DaskExecutionProvider(ArrayProvider):
    """Runs operators as graphs of tasks, which dask computes where a result is wanted."""

    name: ClassVar[str] = "DaskExecutionProvider"
    aliases: ClassVar[tuple[str, ...]] = ("dask",)
    unasked: ClassVar[bool] = False
    namespace: ClassVar[str] = "dask.array"
    install: ClassVar[str] = "'dask[array]'"
    elements: ClassVar[frozenset[str] | None] = frozenset(("BOOL", "DOUBLE", "FLOAT"))

    def supports(self, node: ir.Node) -> Literal[True] | str:
        """Accepts the operators that were tried."""
        if node.domain or node.op_type not in OPERATORS:
            return f"{node.op_type} was not tried with dask"
        return super().supports(node)


@tenonnx.hookimpl
def register_providers(register: Callable[[type[tenonnx.Provider]], None]) -> None:
    """Announce the provider."""
    register(DaskExecutionProvider)
