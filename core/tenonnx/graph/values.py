"""Values and nodes as steps, errors and profiles know them: data, without their graph.

A provider compiles parts of an ``onnx_ir`` graph. What it returns refers to these instead: each
value and node of a graph has one, made when a step first names it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, overload

import numpy as np

from tenonnx.by_name import cacheable

if TYPE_CHECKING:
    import onnx_ir as ir

    from tenonnx.weights.weight import Weight

_NUMBERS = itertools.count()

# Sizes; a string names a symbolic one, and `None` is an unknown one.
Dims: TypeAlias = "tuple[int | str | None, ...]"


@cacheable
class ValueInfo:
    """A value of a plan, equal to another of its number: parts of a plan are cached by themselves.

    Attributes:
        id: Its number, which no other value of the process that made it has.
        name: Its name in the model; ``None`` if it has none.
        dtype: The type of its elements, as numpy has it; ``None`` if the model does not say it.
        shape: Its sizes; ``None`` if the model does not say its rank.
        constant: The weight that it is, or an array; ``None`` for what a caller or a step gives.
    """

    # No dataclass: every process that loads a plan would wait a millisecond for its making.
    __slots__ = ("constant", "dtype", "id", "name", "shape")

    def __init__(
        self,
        id: int,  # noqa: A002 - the attribute's name
        name: str | None,
        dtype: np.dtype[Any] | None = None,
        shape: Dims | None = None,
        constant: Weight | np.ndarray[Any, Any] | None = None,
    ) -> None:
        self.id, self.name, self.dtype = id, name, dtype
        self.shape, self.constant = shape, constant

    def __repr__(self) -> str:
        return f"<ValueInfo {self}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ValueInfo) and self.id == other.id

    def __hash__(self) -> int:
        return self.id

    @property
    def weight(self) -> Weight | None:
        """The weight that it is; ``None`` for an array, and for what is no constant."""
        constant = self.constant
        return None if isinstance(constant, np.ndarray) else constant

    def __reduce__(self) -> tuple[Any, ...]:
        given = self.id, self.name, self.dtype, self.shape, self.constant
        return ValueInfo, given

    def __str__(self) -> str:
        """Return its name, dtype and shape, for messages."""
        dtype = "?" if self.dtype is None else self.dtype
        sizes = ["?"] if self.shape is None else self.shape
        shape = ", ".join("?" if size is None else str(size) for size in sizes)
        return f"'{self.name}' {dtype}[{shape}]"


@cacheable
class NodeInfo:
    """A node of a plan, equal to another of its number.

    Attributes:
        id: Its number, which no other node of the process that made it has.
        name: Its name in the model; ``""`` if it has none.
        op_type, domain, version: Its operator, and the opset version that it is written in.
        inputs, outputs: Its values; ``None`` for an absent one.
        kinds: The types of its attributes, by name, as numbers of ``onnx.AttributeProto``.
        origin: The label of the node that it was made for, from a schema's body; or ``""``.
    """

    __slots__ = (
        "domain",
        "id",
        "inputs",
        "kinds",
        "name",
        "op_type",
        "origin",
        "outputs",
        "version",
    )

    def __init__(
        self,
        id: int,  # noqa: A002 - the attribute's name
        name: str,
        op_type: str,
        domain: str,
        version: int | None,
        inputs: tuple[ValueInfo | None, ...],
        outputs: tuple[ValueInfo, ...],
        kinds: Mapping[str, int],
        origin: str = "",
    ) -> None:
        self.id, self.name, self.origin = id, name, origin
        self.op_type, self.domain, self.version = op_type, domain, version
        self.inputs, self.outputs, self.kinds = inputs, outputs, kinds

    def __repr__(self) -> str:
        return f"<NodeInfo {self.label}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NodeInfo) and self.id == other.id

    def __hash__(self) -> int:
        return self.id

    def __reduce__(self) -> tuple[Any, ...]:
        operator = self.op_type, self.domain, self.version
        values = self.inputs, self.outputs, self.kinds, self.origin
        return NodeInfo, (self.id, self.name, *operator, *values)

    @property
    def label(self) -> str:
        """Its name for people: ``Conv 'stem' (ai.onnx, opset 17)``."""
        from tenonnx.graph import labeled

        name = self.name or (self.outputs[0].name if self.outputs else "")
        return labeled(self.op_type, name, self.domain, self.version, self.origin)


@cacheable
class GraphInfo(NamedTuple):
    """A graph of a plan: the model's, or one inside it.

    Attributes:
        name: Its name in the model; ``""`` if it has none.
        inputs, outputs: Its values.
    """

    name: str
    inputs: tuple[ValueInfo, ...]
    outputs: tuple[ValueInfo, ...]

    @classmethod
    def of(cls, graph: ir.Graph) -> GraphInfo:
        """Return what a plan knows of a graph."""
        return cls(graph.name or "", value_infos(graph.inputs), value_infos(graph.outputs))


class Description:
    """The infos of a graph's values and nodes.

    Attributes:
        values: Those of values that steps have named so far.
        nodes: Those of nodes.
    """

    def __init__(self) -> None:
        self.values: dict[ir.Value, ValueInfo] = {}
        self.nodes: dict[ir.Node, NodeInfo] = {}

    def value(self, value: ir.Value) -> ValueInfo:
        """Return a value's."""
        if (found := self.values.get(value)) is None:
            found = self.values[value] = _info_of(value, next(_NUMBERS))
        return found

    def node(self, node: ir.Node) -> NodeInfo:
        """Return a node's."""
        from tenonnx.graph import ORIGIN_KEY

        if (found := self.nodes.get(node)) is None:
            found = self.nodes[node] = NodeInfo(
                next(_NUMBERS),
                node.name or "",
                node.op_type,
                node.domain,
                node.version,
                tuple([None if each is None else self.value(each) for each in node.inputs]),
                tuple([self.value(each) for each in node.outputs]),
                {name: int(each.type) for name, each in node.attributes.data.items()},
                node.metadata_props.get(ORIGIN_KEY, ""),
            )
        return found


_CURRENT: ContextVar[Description | None] = ContextVar("_CURRENT", default=None)


@contextmanager
def described() -> Iterator[Description]:
    """Have infos made of the same values and nodes be the same within this context."""
    if (known := _CURRENT.get()) is not None:
        yield known
        return
    token = _CURRENT.set(made := Description())
    try:
        yield made
    finally:
        _CURRENT.reset(token)


@overload
def value_info(value: ir.Value | ValueInfo) -> ValueInfo: ...
@overload
def value_info(value: ir.Value | ValueInfo | None) -> ValueInfo | None: ...
def value_info(value: ir.Value | ValueInfo | None) -> ValueInfo | None:
    """Return the info of a graph's value; one that is an info, or nothing, as it is."""
    if value is None or isinstance(value, ValueInfo):
        return value
    return (_CURRENT.get() or Description()).value(value)


def value_infos(values: Iterable[ir.Value | ValueInfo]) -> tuple[ValueInfo, ...]:
    """Return the infos of values."""
    known = _CURRENT.get() or Description()
    return tuple([v if isinstance(v, ValueInfo) else known.value(v) for v in values])


def node_info(node: ir.Node | NodeInfo) -> NodeInfo:
    """Return the info of a graph's node; one that is an info as it is."""
    return node if isinstance(node, NodeInfo) else (_CURRENT.get() or Description()).node(node)


def _info_of(value: ir.Value, number: int) -> ValueInfo:
    kind, shape = value.dtype, value.shape
    dtype = kind.numpy() if kind else None  # UNDEFINED is false
    dims = None
    if shape is not None:
        dims = tuple([size if isinstance(size, int) else size.value for size in shape.dims])
    return ValueInfo(number, value.name, dtype, dims, _constant_of(value))


def _constant_of(value: ir.Value) -> Weight | np.ndarray[Any, Any] | None:
    if not value.is_initializer() or value.is_graph_input() or value.const_value is None:
        return None
    from tenonnx.graph import array_of
    from tenonnx.weights.weight import weight_in

    weight = weight_in(value.const_value)
    return array_of(value.const_value) if weight is None else weight
