"""A provider over a library that compiles functions of arrays by tracing them.

This module is public: plug-ins of others may import it.
"""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from tenonnx.operators import Kernel
from tenonnx.provider import Segment, Step
from tenonnx.records import NamedTuple
from tenonnx_array.provider import ArrayProvider

if TYPE_CHECKING:
    import onnx_ir as ir

Function = Callable[..., tuple[Any, ...]]

KEPT = 64
"""Compiled functions that a step keeps: those used last."""


class Known(NamedTuple):
    """An array that a trace depends on, as a key."""

    content: bytes
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @classmethod
    def of(cls, array: Any) -> Known:
        """Returns the key of an array."""
        array = np.asarray(array)
        return cls(array.tobytes(), array.shape, array.dtype)

    def array(self) -> np.ndarray[Any, Any]:
        """Returns the array, read-only."""
        return np.ndarray(self.shape, self.dtype, self.content)


class TracingProvider(ArrayProvider):
    """Makes one function of each segment, weights among its arguments, and has it compiled.

    A subclass says in ``jit`` how. Values that a kernel needs on the host, such as a shape, are
    known while a function is traced: there is one function for all that it depends on, made when
    first needed; a step keeps the last ``KEPT`` of them. Nodes for which that is not known before
    the run are left to the next provider.
    """

    traces: bool = True
    """Whether it does; if not, nodes run one by one."""

    @abstractmethod
    def jit(self, function: Function) -> Function:
        """Returns a function of arrays that does the same, compiled."""

    def supports(self, node: ir.Node) -> Literal[True] | str:
        """Accepts a node that can be traced."""
        verdict = super().supports(node)
        if verdict is not True or not self.traces:
            return verdict
        kernel = self.kernel(node)
        if kernel.host == "all":
            return "its kernel is for the host"
        for value in _by_value(node, kernel):
            if not self._known(value):
                return f"'{value.name}' would have to be known before the run, and is computed"
        return True

    def compile(self, segment: Segment) -> Sequence[Step]:
        """Returns one step for the whole segment."""
        if not self.traces:
            return super().compile(segment)
        positions = self._static(segment)

        @functools.lru_cache(KEPT)
        def compiled(*known: Known) -> Function:
            arrays = (each.array() for each in known)
            return self.jit(self._traced(segment, dict(zip(positions, arrays, strict=True))))

        def call(*inputs: Any) -> tuple[Any, ...]:
            function = compiled(*(Known.of(inputs[position]) for position in positions))
            return function(*(a for position, a in enumerate(inputs) if position not in positions))

        return [
            Step(
                call,
                segment.inputs,
                segment.outputs,
                segment.nodes,
                multiple=True,
                device=self.device,
                host=positions,
            )
        ]

    def _traced(self, segment: Segment, known: dict[int, Any]) -> Function:
        """Returns the segment's function of its inputs, but for those that are known."""
        bodies = [(node, self.kernel(node)) for node in segment.nodes]

        def traced(*arrays: Any) -> tuple[Any, ...]:
            rest = iter(arrays)
            values: dict[Any, Any] = {None: None}
            for position, value in enumerate(segment.inputs):
                values[value] = known[position] if position in known else next(rest)
            for node, kernel in bodies:
                self._trace(node, kernel, values)
            return tuple(values[value] for value in segment.outputs)

        return traced

    def _trace(self, node: ir.Node, kernel: Kernel, values: dict[Any, Any]) -> None:
        """Computes a node; on numpy if nothing in it is traced, so that shapes stay known."""
        inputs = [values[value] for value in node.inputs]
        known = all(value is None or isinstance(value, np.ndarray) for value in inputs)
        outputs = self.bound(node, np if known else self.xp)(*inputs)
        results = outputs if kernel.multiple else (outputs,)
        values.update(zip(node.outputs, map(_as_array, results), strict=False))

    def _known(self, value: ir.Value) -> bool:
        """Says whether a value is there before the run, or follows from shapes and such values."""
        seen, todo = {value}, [value]
        while todo:
            node = todo.pop().producer()
            if node is None or node.op_type in ("Shape", "Size", "Constant"):
                continue
            if super().supports(node) is not True or self.kernel(node).host == "all":
                return False
            # Among them is what the node takes by value.
            before = {given for given in node.inputs if given is not None} - seen
            seen |= before
            todo += before
        return True

    def _static(self, segment: Segment) -> tuple[int, ...]:
        """Returns the positions of the inputs that the trace needs by value."""
        inside = set(segment.nodes)
        found: set[ir.Value] = set()
        todo = [v for node in segment.nodes for v in _by_value(node, self.kernel(node))]
        while todo:
            value = todo.pop()
            producer = value.producer()
            if value in found:
                continue
            found.add(value)
            if producer in inside and producer.op_type not in ("Shape", "Size"):
                todo += [given for given in producer.inputs if given is not None]
        return tuple(i for i, value in enumerate(segment.inputs) if value in found)


def _by_value(node: ir.Node, kernel: Kernel) -> list[ir.Value]:
    """Returns the inputs of a node that its kernel takes on the host."""
    assert kernel.host != "all"
    given = (node.inputs[position] for position in kernel.host if position < len(node.inputs))
    return [value for value in given if value is not None]


def _as_array(value: Any) -> Any:
    return np.asarray(value) if isinstance(value, np.generic | int | float) else value
