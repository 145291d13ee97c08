"""Objects that stand for a graph's values and nodes in a plan that was kept.

They answer what steps and fallbacks ask while they run, and what is asked to make steps of a few
nodes; whatever else is asked of a graph is asked of the model, which is then read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tenonnx.later import Later
from tenonnx.plans import Unkept
from tenonnx.weights.storage import is_packed, unpack

INITIALIZER, INPUT, OUTPUT, USED = 1, 2, 4, 8
"""The facts about a value: flags."""


class _Late:
    """A stand-in that may be made before what is known of it is read."""

    __slots__ = ("_fill",)
    _fill: Callable[[], tuple[Any, ...]]

    def __getattr__(self, name: str) -> Any:
        """Takes all that is known, when something is asked that it does not have yet."""
        if name not in type(self).__slots__:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        type(self).__init__(self, *self._fill())
        return object.__getattribute__(self, name)


class Value(_Late):
    """Stands for an ``onnx_ir.Value``."""

    __slots__ = ("_dims", "_facts", "_number", "const_value", "name")

    def __init__(
        self,
        name: str | None,
        facts: int,
        number: int | None,
        dims: tuple[int | str | None, ...] | None,
        const_value: Tensor | None,
    ) -> None:
        self.name, self.const_value = name, const_value
        self._facts, self._number, self._dims = facts, number, dims

    def __reduce__(self) -> tuple[Any, ...]:
        given = self.name, self._facts, self._number, self._dims, self.const_value
        return Value, given

    def is_initializer(self) -> bool:
        """Says whether it has a value of its own."""
        return bool(self._facts & INITIALIZER)

    def is_graph_input(self) -> bool:
        """Says whether a caller gives it."""
        return bool(self._facts & INPUT)

    def is_graph_output(self) -> bool:
        """Says whether a caller gets it."""
        return bool(self._facts & OUTPUT)

    def uses(self) -> tuple[()] | tuple[None]:
        """Returns something true if a node reads it."""
        return (None,) if self._facts & USED else ()

    @property
    def dtype(self) -> Any:
        """Its element type."""
        from tenonnx.lazy_modules import onnx_ir as ir  # few runs ask

        return None if self._number is None else ir.DataType(self._number)

    @property
    def shape(self) -> Any:
        """Its shape."""
        from tenonnx.lazy_modules import onnx_ir as ir  # few runs ask

        return None if self._dims is None else ir.Shape(self._dims)


class Tensor:
    """Stands for a tensor: a weight's, or an array that is kept with the plan."""

    __slots__ = ("_array", "_number", "weight")

    def __init__(
        self, weight: Any, array: np.ndarray[Any, Any] | None = None, number: int = 0
    ) -> None:
        self.weight, self._array, self._number = weight, array, number

    @property
    def size(self) -> int:
        """Number of elements."""
        return int(np.prod(self.shape))

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape."""
        return tuple(self.weight.shape if self._array is None else self._array.shape)

    @property
    def dtype(self) -> Any:
        """Its element type."""
        from tenonnx.lazy_modules import onnx_ir as ir  # few runs ask

        return self.weight.dtype if self._array is None else ir.DataType(self._number)

    def numpy(self) -> np.ndarray[Any, Any]:
        """Returns its elements, one to a byte at least."""
        if self._array is not None:
            return self._array
        array: np.ndarray[Any, Any] = self.weight.array
        return unpack(array, self.dtype, self.shape) if is_packed(self.dtype) else array


class Attribute:
    """Stands for an ``onnx_ir.Attr``."""

    __slots__ = ("_number", "name", "value")

    def __init__(self, name: str, number: int, value: Any) -> None:
        self.name, self._number, self.value = name, number, value

    @property
    def type(self) -> Any:
        """Its kind."""
        from tenonnx.lazy_modules import onnx_ir as ir  # few runs ask

        return ir.AttributeType(self._number)

    def is_ref(self) -> bool:
        """Says whether it is a function's: none is, once functions are inlined."""
        return False


class Attributes(dict[str, Attribute]):
    """Stands for a node's attributes."""

    @property
    def data(self) -> Mapping[str, Attribute]:
        """Themselves."""
        return self


class Node(_Late):
    """Stands for an ``onnx_ir.Node`` without graphs."""

    __slots__ = ("attributes", "domain", "inputs", "name", "op_type", "outputs", "version")

    def __init__(
        self,
        kind: tuple[str, str, int | None],
        name: str | None,
        inputs: tuple[Value | None, ...],
        outputs: tuple[Value, ...],
        attributes: tuple[tuple[str, int, Any], ...],
    ) -> None:
        self.domain, self.op_type, self.version = kind
        self.name, self.inputs, self.outputs = name, inputs, outputs
        self.attributes = Attributes((each[0], Attribute(*each)) for each in attributes)

    def __reduce__(self) -> tuple[Any, ...]:
        kind = self.domain, self.op_type, self.version
        attributes = tuple((a.name, a._number, a.value) for a in self.attributes.values())
        return Node, (kind, self.name, self.inputs, self.outputs, attributes)

    @property
    def metadata_props(self) -> dict[str, str]:
        """Nothing is known of where it came from."""
        return {}


class Graph:
    """The values and nodes of a plan, each of which has one stand-in.

    Args:
        read: Returns what is known of the nodes, and of the values.
    """

    def __init__(self, read: Callable[[], Any]) -> None:
        self._read = Later(make=read)
        self._nodes: dict[int, Node] = {}
        self._values: dict[int, Value] = {}

    def node(self, number: int) -> Node:
        """Returns the stand-in for a node."""
        if (found := self._nodes.get(number)) is None:
            found = Node.__new__(Node)
            found._fill = lambda: self._read.open()[0][number]
        return self._nodes.setdefault(number, found)

    def value(self, number: int) -> Value:
        """Returns the stand-in for a value."""
        if (found := self._values.get(number)) is None:
            found = Value.__new__(Value)
            found._fill = lambda: self._read.open()[1][number]
        return self._values.setdefault(number, found)


class Numbered:
    """Parts of a graph, numbered as they are met."""

    def __init__(self) -> None:
        self.met: list[Any] = []
        self._numbers: dict[int, int] = {}

    def number(self, thing: Any) -> int:
        """Returns a part's number."""
        if id(thing) not in self._numbers:
            self._numbers[id(thing)] = len(self.met)
            self.met.append(thing)
        return self._numbers[id(thing)]


class GraphFacts:
    """The values and nodes that a plan refers to, and those that these do."""

    def __init__(self) -> None:
        self.nodes, self.values = Numbered(), Numbered()

    def facts(self) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
        """Returns what stand-ins for nodes, and those for values, are made of."""
        nodes = [of_node(node) for node in self.nodes.met]
        for node in self.nodes.met:
            for value in (*node.inputs, *node.outputs):
                if value is not None:
                    self.values.number(value)
        return nodes, [of_value(value) for value in self.values.met]


def of_value(value: Any) -> tuple[Any, ...]:
    """Returns what a value's stand-in is made of."""
    facts = INITIALIZER * value.is_initializer() + INPUT * value.is_graph_input()
    facts += OUTPUT * value.is_graph_output() + USED * bool(value.uses())
    shape, dtype = value.shape, value.dtype
    dims = None if shape is None else tuple(d if type(d) is int else d.value for d in shape.dims)
    number = None if dtype is None else int(dtype)
    tensor = value.const_value
    return value.name, facts, number, dims, None if tensor is None else of_tensor(tensor)


def of_tensor(tensor: Any) -> Tensor:
    """Returns a tensor's stand-in."""
    if (weight := getattr(tensor, "weight", None)) is not None:
        return Tensor(weight)
    from tenonnx.graph import array_of

    return Tensor(None, array_of(tensor), int(tensor.dtype))


def of_node(node: Any) -> tuple[Any, ...]:
    """Returns what a node's stand-in is made of."""
    attributes = tuple((a.name, int(a.type), _plain(a, node)) for a in node.attributes.values())
    kind = node.domain, node.op_type, node.version
    return kind, node.name, tuple(node.inputs), tuple(node.outputs), attributes


def _plain(attribute: Any, node: Any) -> Any:
    import onnx_ir as ir

    kinds, value = ir.AttributeType, attribute.value
    if attribute.type == kinds.TENSOR:
        return of_tensor(value)
    if attribute.type == kinds.TENSORS:
        return tuple(map(of_tensor, value))
    if attribute.type in (kinds.FLOATS, kinds.INTS, kinds.STRINGS):
        return tuple(value)
    if attribute.type in (kinds.FLOAT, kinds.INT, kinds.STRING):
        return value
    raise Unkept(f"{node.op_type} has {attribute.name}, which is {attribute.type.name.lower()}")
