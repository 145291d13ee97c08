"""A provider over a library that compiles functions of arrays by tracing them.

This module is public: plug-ins of others may import it.
"""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from tenonnx.operators import Kernel
from tenonnx.provider import Segment, Step
from tenonnx_array.provider import ArrayProvider

if TYPE_CHECKING:
    import onnx_ir as ir

Function = Callable[..., tuple[Any, ...]]

# Compiled functions that a step keeps: those used last.
MAX_COMPILED = 64


class Known(NamedTuple):
    """An array that a trace depends on, as a key."""

    content: bytes
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @classmethod
    def of(cls, array: Any) -> Known:
        """Return the key of an array."""
        array = np.asarray(array)
        return cls(array.tobytes(), array.shape, array.dtype)

    def array(self) -> np.ndarray[Any, Any]:
        """Return the array, read-only."""
        return np.ndarray(self.shape, self.dtype, self.content)


class TracingProvider(ArrayProvider):
    """A provider whose segments are compiled functions, weights among their arguments.

    A subclass says in ``jit`` how. Values that a kernel needs on the host, such as a shape, are
    known while a function is traced: there is one function for all that it depends on, made when
    first needed; a step keeps the last ``MAX_COMPILED`` of them. Nodes for which that is not known
    before the run are left to the next provider.
    """

    traces: bool = True
    """Whether it does; if not, nodes run one by one."""

    @abstractmethod
    def jit(self, function: Function) -> Function:
        """Return a function of arrays that does the same, compiled."""

    def supports(self, node: ir.Node) -> Literal[True] | str:
        """Accept a node that can be traced."""
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

    def claim(self, nodes: Sequence[ir.Node]) -> Iterable[Sequence[ir.Node]] | None:
        """Claim all nodes at once, for as few functions as there can be, if it traces."""
        return [nodes] if self.traces else super().claim(nodes)

    def compile(self, segment: Segment) -> Sequence[Step]:
        """Return one step for the whole segment."""
        if not self.traces:
            return super().compile(segment)
        call = _Traced(self, segment, self._static(segment))
        return [
            Step(
                call,
                segment.inputs,
                segment.outputs,
                segment.nodes,
                multiple=True,
                device=self.device,
                host=call.positions,
            )
        ]

    def trace(self, node: ir.Node, values: dict[Any, Any]) -> None:
        """Add a node's outputs to values.

        On numpy if nothing in it is traced, so that shapes stay known.
        """
        kernel, inputs = self.kernel(node), [values[value] for value in node.inputs]
        known = all(value is None or isinstance(value, np.ndarray) for value in inputs)
        outputs = self.bound(node, np if known else self.xp)(*inputs)
        results = outputs if kernel.multiple else (outputs,)
        values.update(zip(node.outputs, map(_as_array, results), strict=False))

    def _known(self, value: ir.Value) -> bool:
        """Return whether a value is there before the run, or follows from those and shapes."""
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
        """Return the positions of the inputs that the trace needs by value."""
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


class _Traced:
    """A segment's function for each value of the inputs that a trace needs by value.

    Args:
        provider: It traces.
        segment: The nodes.
        positions: Of those inputs.
    """

    def __init__(
        self, provider: TracingProvider, segment: Segment, positions: tuple[int, ...]
    ) -> None:
        self.positions = positions
        self._provider, self._segment = provider, segment
        self._compiled = functools.lru_cache(MAX_COMPILED)(self._compile)

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        """Return the segment's outputs."""
        function = self._compiled(*(Known.of(inputs[position]) for position in self.positions))
        rest = (a for position, a in enumerate(inputs) if position not in self.positions)
        return function(*rest)

    def _compile(self, *known: Known) -> Function:
        return self._provider.jit(functools.partial(self._trace, known))

    def _trace(self, known: Sequence[Known], *arrays: Any) -> tuple[Any, ...]:
        rest, by_value = iter(arrays), (each.array() for each in known)
        values: dict[Any, Any] = {None: None}
        for position, value in enumerate(self._segment.inputs):
            values[value] = next(by_value if position in self.positions else rest)
        for node in self._segment.nodes:
            self._provider.trace(node, values)
        return tuple(values[value] for value in self._segment.outputs)


def _by_value(node: ir.Node, kernel: Kernel) -> list[ir.Value]:
    """Return the inputs of a node that its kernel takes on the host."""
    assert kernel.host != "all"
    given = (node.inputs[position] for position in kernel.host if position < len(node.inputs))
    return [value for value in given if value is not None]


def _as_array(value: Any) -> Any:
    return np.asarray(value) if isinstance(value, np.generic | int | float) else value
