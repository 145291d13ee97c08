"""Checks of operands' shapes, when a model is loaded and when a step sees shapes that are new.

The shape to which operands broadcast is here, too.

What the sizes of inputs and weights decide is not asked again. The rest is asked by the
step, which remembers the latest shapes: a step that is captured asks while it is traced.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tenonnx.by_name import cacheable
from tenonnx.errors import MalformedGraph
from tenonnx.graph.operand_shapes import Requirement, Shape, parsed

if TYPE_CHECKING:
    import onnx_ir as ir

    from tenonnx.operators import Kernel
    from tenonnx.provider import Provider

# The key under which a node remembers the requirements that are open, with their operands.
OPEN_YET = "tenonnx.graph.shape_checks"

# The same for those of a node that it replaced, with others.
INHERITED = "tenonnx.graph.shape_checks.inherited"


def requirement(kernel: Kernel, node: ir.Node) -> Requirement:
    """Return what a node's kernel declares of its operands."""
    from tenonnx.graph import attribute

    names, defaults, declared = kernel.operands(), kernel.defaults(), parsed(kernel.shapes).names
    given = {name: attribute(node, name, defaults[name]) for name in declared if name in defaults}
    values = tuple(None if value is None else value.name for value in node.inputs)
    there = tuple(
        None if value is None else name for name, value in zip(names, node.inputs, strict=False)
    )
    given |= {name: None for name in names if name in declared and name not in there}  # absent
    return Requirement(kernel.shapes, there, values, given)


def check_model(model: ir.Model, providers: Sequence[Provider]) -> None:
    """Compare the shapes that follow from a model with what its operators declare.

    Raises:
        MalformedGraph: An operand's shape is not as declared.
    """
    from tenonnx import graph as graphs

    kernels: dict[tuple[str, str, int | None], Kernel | None] = {}
    for node in graphs.nodes(model.graph):
        if not node.outputs:  # nothing reads what it would compute
            continue
        key = node.domain, node.op_type, node.version
        if key not in kernels:
            found = filter(None, (provider.kernel_of(node) for provider in providers))
            kernels[key] = next(found, None)
        kernel = kernels[key]
        if kernel is None or not kernel.shapes:
            continue
        required, shapes = requirement(kernel, node), tuple(map(known_shape, node.inputs))
        try:
            is_decided = _decide(required, shapes)
        except ValueError as error:
            raise MalformedGraph(f"{graphs.label(node)}: {error}") from None
        node.meta[OPEN_YET] = () if is_decided else ((required, tuple(node.inputs)),)


# Decisions of which a process remembers some: with more, it forgets all.
MAX_DECISIONS = 4096
_decisions: dict[tuple[Any, ...], bool] = {}


def _decide(required: Requirement, shapes: Sequence[Shape | None]) -> bool:
    """Return what ``Requirement.decide`` does, which is asked once for layers that repeat."""
    key = required.text, required.operands, repr(required.attributes), tuple(shapes)
    if (found := _decisions.get(key)) is None:
        found = required.decide(shapes)
        if len(_decisions) >= MAX_DECISIONS:
            _decisions.clear()
        _decisions[key] = found
    return found


def inherit(node: ir.Node, others: Iterable[ir.Node]) -> None:
    """Have the steps of nodes that replace another one check what is declared of its operands."""
    if own := (*(_remembered(node, OPEN_YET) or ()), *(_remembered(node, INHERITED) or ())):
        for other in others:
            other.meta[INHERITED] = own


def _remembered(node: ir.Node, key: str) -> Any:
    return node.meta.get(key)


def known_shape(value: ir.Value | None) -> Shape | None:
    """Return the sizes of an input or weight; ``None`` of what a node makes.

    What follows for others takes longer to find out than to look at in the first run.
    """
    if value is None or value.producer() is not None:
        return None
    shape = value.shape if value.const_value is None else value.const_value.shape
    if shape is None:
        return None
    return tuple([size if isinstance(size, int) else None for size in shape])


def checked(
    call: Callable[..., Any],
    nodes: Iterable[ir.Node],
    inputs: Sequence[ir.Value | None],
    kernel_of: Callable[[ir.Node], Kernel | None],
) -> Callable[..., Any]:
    """Return a step's call that checks the shapes which are open before a run.

    Args:
        call: The step's call.
        nodes: What it computes.
        inputs: What it takes.
        kernel_of: Finds what a node's operator declares, of nodes that transforms made.
    """
    found: dict[int, tuple[Requirement, Sequence[ir.Value | None]]] = {}
    for node in nodes:
        own = _remembered(node, OPEN_YET)
        if own is None and (kernel := kernel_of(node)) is not None and kernel.shapes:
            own = ((requirement(kernel, node), tuple(node.inputs)),)
        for each in (*(own or ()), *(_remembered(node, INHERITED) or ())):
            found[id(each[0])] = each
    if not found:
        return call
    parts = []
    there = {value: place for place, value in enumerate(inputs) if value is not None}
    for required, operands in found.values():
        places = [there.get(each, known_shape(each)) if each else None for each in operands]
        if any(isinstance(place, int) for place in places):
            parts.append((required, places))
    return Checked(call, parts) if parts else call


def deciding(
    shapes: Sequence[Shape | None], decisive: Iterable[tuple[int, float, Sequence[int]]]
) -> list[Any]:
    """Return the part of shapes that decides: they fit if others with the same did.

    Args:
        shapes: Of a step's inputs.
        decisive: Places of inputs; and for those with at least so many axes, which of these decide.
    """
    found: list[Any] = []
    for place, least, axes in decisive:
        shape = shapes[place]
        if shape is None or len(shape) < least:
            found.append(shape)
        else:
            found += (len(shape), *[shape[axis] for axis in axes])
    return found


# Shapes that a step's call remembers as fitting; with one more, it forgets the others.
MAX_REMEMBERED_SHAPES = 64


@cacheable
class Checked:
    """A step's call whose operands' shapes are compared with declarations when they are new.

    Args:
        call: The step's call.
        parts: What is declared, each with the places of its operands among the call's inputs:
            a place, a shape that is known, or ``None``.
    """

    def __init__(
        self, call: Callable[..., Any], parts: Sequence[tuple[Requirement, Sequence[Any]]]
    ) -> None:
        self.call, self.parts = call, tuple(parts)
        self.__wrapped__ = call
        self._seen: Any = None
        self._decisive: Any = None
        self._fit: dict[Any, None] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle it as it was before the first call."""
        return Checked, (self.call, self.parts)

    def of(self, call: Callable[..., Any]) -> Checked:
        """Return another call that checks the same."""
        return Checked(call, self.parts)

    def __call__(self, *inputs: Any, **more: Any) -> Any:
        """Return the call's results.

        Raises:
            ValueError: An operand's shape is not as declared.
        """
        shapes = [None if x is None else x.shape for x in inputs]
        if shapes != self._seen:
            self._compare(shapes)
            self._seen = shapes
        return self.call(*inputs, **more)

    def _compare(self, shapes: Sequence[Any]) -> None:
        """Compare shapes with declarations, unless others with the same deciding sizes fit."""
        if self._decisive is None:
            self._decisive = [
                [
                    (place, *axes)
                    for place, axes in zip(places, required.decisive(), strict=False)
                    if type(place) is int  # others are the same in every run
                ]
                for required, places in self.parts
            ]
        for number, (required, places) in enumerate(self.parts):
            key = number, *deciding(shapes, self._decisive[number])
            if key not in self._fit:
                _decide(required, [shapes[p] if type(p) is int else p for p in places])
                self._fit = (
                    {**self._fit, key: None}
                    if len(self._fit) < MAX_REMEMBERED_SHAPES
                    else {key: None}
                )


# Axes of a shape that `np.broadcast_shapes` takes at most, of the 64 that arrays may have.
MAX_BROADCAST_AXES = 32


def broadcast_shapes(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of a result of arrays of these shapes, as ``np.broadcast_shapes`` does.

    Raises:
        ValueError: They do not broadcast.
    """
    if max(map(len, shapes), default=0) <= MAX_BROADCAST_AXES:
        return np.broadcast_shapes(*shapes)
    result = []
    for sizes in itertools.zip_longest(*map(reversed, shapes), fillvalue=1):
        size, *others = {*sizes} - {1} or {1}
        if others:
            raise ValueError("expected shapes that broadcast")
        result.append(size)
    return tuple(reversed(result))
