"""An execution provider over any array namespace: subclass it, name a namespace and a device."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from tenonnx.graph import python_attributes, subgraphs
from tenonnx.operators import Kernel, Namespace, OperatorTable
from tenonnx.options import SessionOptions
from tenonnx.provider import Provider, Segment, Step

if TYPE_CHECKING:
    import onnx_ir as ir


class ArrayProvider(Provider):
    """Runs nodes one by one with the operator table, bound to ``xp``.

    Subclasses set ``name``, ``device`` and ``xp``, and may set ``overrides``.
    """

    overrides: ClassVar[OperatorTable] = OperatorTable()
    """Kernels of this provider's own, in place of the table's at the same version."""

    def __init__(
        self,
        options: Any = None,
        operators: OperatorTable | None = None,
        session_options: SessionOptions | None = None,
    ) -> None:
        super().__init__(options, operators, session_options)
        table = _table(type(self))
        self.table = OperatorTable().update(table, operators) if operators else table

    @property
    def xp(self) -> Namespace:
        """The array namespace, imported when it is first needed."""
        return np

    def supports(self, node: ir.Node) -> Literal[True] | str:
        """Accepts a node whose operator and attributes are in the table."""
        kernel = self.table.find(node.domain, node.op_type, node.version or 1)
        if kernel is None:
            return f"no kernel for {node.domain or 'ai.onnx'}::{node.op_type}-{node.version}"
        if unknown := node.attributes.keys() - kernel.attributes.keys():
            return f"{kernel} has no attribute {', '.join(sorted(unknown))}"
        if len(node.outputs) > 1 and not kernel.multiple:
            return f"{kernel} has one output, the node names {len(node.outputs)}"
        return True

    def compile(self, segment: Segment) -> Sequence[Step]:
        """Returns a step per node."""
        return [self._step(node) for node in segment.nodes]

    def _step(self, node: ir.Node) -> Step:
        kernel = self.table.find(node.domain, node.op_type, node.version or 1)
        assert kernel is not None, "the node was placed here because the table has its operator"
        inputs = list(node.inputs)
        while inputs and inputs[-1] is None:
            inputs.pop()
        return Step(
            call=kernel.bind(self._namespace(kernel), python_attributes(node), len(node.outputs)),
            inputs=tuple(inputs),
            outputs=tuple(node.outputs),
            nodes=(node,),
            multiple=kernel.multiple,
            device=self.device,
            host=kernel.host,
            host_output=kernel.host_output,
            bodies=tuple(name for name, _ in subgraphs(node)),
        )

    def _namespace(self, kernel: Kernel) -> Namespace:
        return np if kernel.host == "all" else self.xp


@functools.cache
def _table(provider: type[ArrayProvider]) -> OperatorTable:
    from tenonnx_array import TABLE

    return OperatorTable().update(TABLE, provider.overrides)
