"""A provider over a library that compiles functions of arrays by tracing them.

This module is public: plug-ins of others may import it.
"""

from __future__ import annotations

import functools
import json
import threading
from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from tenonnx.graph import has_bodies
from tenonnx.operators import Kernel
from tenonnx.provider import Segment, Step
from tenonnx.segments import Executable, SegmentProvider
from tenonnx.weights.digest import digest
from tenonnx.weights.registry import default_registry
from tenonnx_array.provider import ArrayProvider

if TYPE_CHECKING:
    import onnx_ir as ir

    from tenonnx.weights.weight import Weight

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


class ArrayType(NamedTuple):
    """The type of an array, as numpy names it.

    Attributes:
        dtype: As ``float32``.
        shape: The sizes.
    """

    dtype: str
    shape: tuple[int, ...]

    @classmethod
    def of(cls, array: Any) -> ArrayType:
        """Return the type of an array of some library's."""
        return cls(str(array.dtype).rpartition(".")[2], tuple(array.shape))


class TracingProvider(SegmentProvider, ArrayProvider):
    """A provider whose segments are compiled functions, weights among their arguments.

    A subclass says in ``jit`` how. Values that a kernel needs on the host, such as a shape, are
    known while a function is traced: there is one function for all that it depends on, made when
    first needed; a step keeps the last ``MAX_COMPILED`` of them. Nodes for which that is not known
    before the run are left to the next provider.

    With ``serialized`` and ``deserialized``, functions are kept for later processes as well: one
    for each set of types and shapes of the inputs.
    """

    traces: bool = True
    """Whether it does; if not, nodes run one by one."""

    serializes: bool = False
    """Whether ``serialized`` makes bytes of functions."""

    @abstractmethod
    def jit(self, function: Function) -> Function:
        """Return a function of arrays that does the same, compiled."""

    def serialized(self, function: Function, types: Sequence[ArrayType]) -> bytes:
        """Return the bytes of a function, compiled for arrays of these types and this machine.

        None at all if the function cannot be compiled so: ``jit`` gets it then.
        """
        raise NotImplementedError

    def deserialized(self, binary: memoryview) -> Function:
        """Return the function of which ``serialized`` made bytes."""
        raise NotImplementedError

    def machine(self) -> str:
        """Return what compiled functions depend on, besides ``depends_on``, such as a device."""
        return ""

    def runs(self, node: ir.Node) -> Literal[True] | str:
        """Accept a node that can be traced."""
        verdict = ArrayProvider.supports(self, node)
        if verdict is not True or not self.traces:
            return verdict
        kernel = self.kernel(node)
        if kernel.host == "all" or has_bodies(node):
            return "its kernel is for the host"
        for value in _by_value(node, kernel):
            if not self._known(value):
                return f"'{value.name}' would have to be known before the run, and is computed"
        return True

    def claim(self, nodes: Sequence[ir.Node]) -> Iterable[Sequence[ir.Node]] | None:
        """Claim all nodes at once, for as few functions as there can be, if it traces."""
        return super().claim(nodes) if self.traces else None

    def build(self, segment: Segment) -> bytes:
        """Return the segment's nodes: later processes trace them again for other shapes."""
        from tenonnx.segments.delegate import segment_model  # not where a plan is opened

        proto: bytes = segment_model(segment, by_reference=0).proto.SerializeToString()
        versions = [node.version for node in segment.nodes]
        return json.dumps(versions).encode() + b"\n" + proto

    def compile(self, segment: Segment) -> Sequence[Step]:
        """Return one step for the whole segment."""
        if not self.traces:
            return ArrayProvider.compile(self, segment)
        positions, count = self._static(segment), len(segment.outputs)
        call = Traced(self.kept(segment), count, self, positions, _variable(segment, positions))
        ends = segment.inputs, segment.outputs, segment.nodes
        return [Step(call, *ends, multiple=True, device=self.device, host=positions)]

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
            if ArrayProvider.supports(self, node) is not True or self.kernel(node).host == "all":
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


class Traced(Executable):
    """A segment's function for each value of the inputs that a trace needs by value.

    Args:
        weight: The nodes, as ``TracingProvider.build`` writes them.
        outputs: The number of the segment's outputs.
        provider: It traces.
        positions: Of those inputs.
        variable: Positions of other inputs that are no constants.
    """

    def __init__(
        self,
        weight: Weight,
        outputs: int,
        provider: TracingProvider,
        positions: tuple[int, ...],
        variable: tuple[int, ...],
    ) -> None:
        super().__init__(weight, outputs)
        self._provider, self._positions, self._variable = provider, positions, variable
        self._functions: OrderedDict[Any, Function] = OrderedDict()
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        facts = self.weight, self.outputs, self._provider, self._positions, self._variable
        return type(self), facts

    @functools.cached_property
    def segment(self) -> Segment:
        """The nodes; few processes trace what is kept."""
        import onnx

        from tenonnx.segments.delegate import segment_of

        versions, _, proto = bytes(self.binary).partition(b"\n")
        return segment_of(onnx.ModelProto.FromString(proto), json.loads(versions))

    def run(self, loaded: Any, inputs: Sequence[Any], outs: Sequence[Any]) -> Sequence[Any]:
        """Run once."""
        del loaded, outs  # functions return arrays of their own
        known = tuple(Known.of(inputs[position]) for position in self._positions)
        rest = [a for position, a in enumerate(inputs) if position not in self._positions]
        key: Any = known
        if self._provider.serializes:
            key = known, tuple(ArrayType.of(inputs[position]) for position in self._variable)
        return self._function(key, known, rest)(*rest)

    def _function(self, key: Any, known: Sequence[Known], arrays: Sequence[Any]) -> Function:
        with self._lock:
            if (found := self._functions.get(key)) is not None:
                self._functions.move_to_end(key)
                return found
        made = self._made(known, [ArrayType.of(array) for array in arrays])
        with self._lock:
            self._functions[key] = made
            while len(self._functions) > MAX_COMPILED:
                self._functions.popitem(last=False)
        return made

    def _made(self, known: Sequence[Known], types: Sequence[ArrayType]) -> Function:
        """Return a function: one that another process has compiled, or a new one."""
        provider, function = self._provider, functools.partial(self._trace, known)
        if provider.serializes:
            registry = provider.session_options.weights or default_registry()
            facts = digest(repr(known), repr(types), provider.machine())
            key = f"{self.weight.key}:{facts}"
            kept = registry.kept(key, lambda: provider.serialized(function, types))
            if kept.nbytes:
                return provider.deserialized(kept.array.data)
        return provider.jit(function)

    def _trace(self, known: Sequence[Known], *arrays: Any) -> tuple[Any, ...]:
        rest, by_value = iter(arrays), (each.array() for each in known)
        values: dict[Any, Any] = {None: None}
        for position, value in enumerate(self.segment.inputs):
            values[value] = next(by_value if position in self._positions else rest)
        for node in self.segment.nodes:
            self._provider.trace(node, values)
        return tuple(values[value] for value in self.segment.outputs)


def _variable(segment: Segment, positions: Sequence[int]) -> tuple[int, ...]:
    """Return the positions of inputs whose types decide which function runs."""
    found = []
    for position, value in enumerate(segment.inputs):
        fixed = value.is_initializer() and not value.is_graph_input()
        if not fixed and position not in positions:
            found.append(position)
    return tuple(found)


def _by_value(node: ir.Node, kernel: Kernel) -> list[ir.Value]:
    """Return the inputs of a node that its kernel takes on the host."""
    assert kernel.host != "all"
    given = (node.inputs[position] for position in kernel.host if position < len(node.inputs))
    return [value for value in given if value is not None]


def _as_array(value: Any) -> Any:
    return np.asarray(value) if isinstance(value, np.generic | int | float) else value
