"""From a placement to blocks of steps: every segment compiled, every value's home known."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tenonnx import graph as graphs
from tenonnx.errors import EPFail, InvalidGraph, NodeRefused
from tenonnx.interruption import Stopped
from tenonnx.planning.placement import PlacedSegment, Placement
from tenonnx.provider import HOST, Device, Provider, Segment, Step
from tenonnx.records import NamedTuple, record
from tenonnx.weights.weight import weight_in
from tenonnx.wellformed import misfit

if TYPE_CHECKING:
    import onnx_ir as ir

    from tenonnx.weights.weight import Weight


@record
class Control:
    """A node and its bodies, compiled.

    Attributes:
        node: The node.
        bodies: By attribute name.
        step: The step that calls the bodies; ``None`` for control flow, which is the runtime's own.
    """

    node: ir.Node
    bodies: Mapping[str, Block]
    step: Step | None = None

    @property
    def outputs(self) -> Sequence[ir.Value]:
        """Values the node produces."""
        return self.node.outputs if self.step is None else self.step.outputs


class Ends(NamedTuple):
    """The inputs and outputs of a graph of steps."""

    inputs: tuple[ir.Value, ...]
    outputs: tuple[ir.Value, ...]


class Block(NamedTuple):
    """A graph as steps in order. ``last_use[i]`` are the values that item ``i`` reads last."""

    graph: ir.Graph | Ends
    items: tuple[Step | Control, ...]
    last_use: tuple[tuple[ir.Value, ...], ...]

    def steps(self) -> Iterator[Step]:
        """Yields the steps of the block and of the blocks inside it."""
        for item in self.items:
            if isinstance(item, Step):
                yield item
            else:
                for body in item.bodies.values():
                    yield from body.steps()
                if item.step is not None:
                    yield item.step

    def apart(self) -> Block:
        """Returns a block of the parts of those steps that have any."""
        items: list[Step | Control] = []
        for item in self.items:
            if isinstance(item, Step):
                items += item.parts or (item,)
            else:
                bodies = {name: body.apart() for name, body in item.bodies.items()}
                items.append(Control(item.node, bodies, item.step))
        return Block(self.graph, tuple(items), _last_uses(self.graph, items))


class Lowering:
    """Compiles a placement.

    Attributes:
        block: The main graph's.
        outputs: The graph outputs to compute.
        home: Where each value that a step or node produces appears first.
    """

    _given: Sequence[tuple[ir.Value, Device]] = ()

    def __init__(self, placement: Placement) -> None:
        self.home: dict[ir.Value, Device] = {}
        self._model = placement.model  # its weights go with it
        self.block = self._lower(placement)
        self.outputs: tuple[ir.Value, ...] = tuple(placement.graph.outputs)

    @classmethod
    def of_steps(
        cls,
        steps: Sequence[Step],
        inputs: Sequence[tuple[ir.Value, Device]],
        outputs: Sequence[ir.Value],
    ) -> Lowering:
        """Returns a lowering of steps that are compiled already, and of where its inputs are."""
        made = cls.__new__(cls)
        made._given = inputs
        made.home = {value: step.device_of_outputs for step in steps for value in step.outputs}
        made.home.update(inputs)
        ends = Ends(tuple(value for value, _ in inputs), tuple(outputs))
        made.block = Block(ends, tuple(steps), _last_uses(ends, steps))
        made.outputs = ends.outputs
        return made

    def inputs(self) -> Sequence[tuple[ir.Value, Device]]:
        """Returns the inputs and where they are; one that is in two places comes twice."""
        own = self.block.graph.inputs
        return self._given or [(value, self.home_of(value) or HOST) for value in own]

    def apart(self) -> Lowering:
        """Returns a lowering of the parts of those steps that have any."""
        if not any(step.parts for step in self.block.steps()):
            return self
        apart = copy.copy(self)
        apart.block = self.block.apart()
        return apart

    def narrowed(self, outputs: Sequence[ir.Value]) -> Lowering:
        """Returns a lowering of those steps, apart, that some of the graph outputs need."""
        needed = set(outputs)
        items: list[Step | Control] = []
        for item in reversed(self.apart().block.items):
            if not needed.isdisjoint(item.outputs):
                items.append(item)
                needed.update(_reads(item))
        items.reverse()
        narrow = copy.copy(self)
        narrow.block = Block(self.block.graph, tuple(items), _last_uses(self.block.graph, items))
        narrow.outputs = tuple(outputs)
        return narrow

    def started_on(self, devices: Sequence[Device]) -> Lowering:
        """Returns a lowering whose inputs appear on these devices."""
        started = copy.copy(self)
        started.home = {**self.home, **dict(zip(self.block.graph.inputs, devices, strict=True))}
        return started

    def _lower(self, placement: Placement) -> Block:
        items: list[Step | Control] = []
        for placed in placement.items:
            if isinstance(placed, PlacedSegment):
                items += self._steps(placed)
                continue
            bodies = {name: self._lower(body) for name, body in placed.bodies.items()}
            if placed.own is not None:
                for step in self._steps(placed.own):
                    items.append(Control(placed.node, bodies, step) if step.bodies else step)
            else:
                control = Control(placed.node, bodies)
                self._settle(control)
                items.append(control)
        return Block(placement.graph, tuple(items), _last_uses(placement.graph, items))

    def _steps(self, placed: PlacedSegment) -> Sequence[Step]:
        steps = compile_segment(placed.provider, placed.segment)
        for made in (*steps, *(part for step in steps for part in step.parts)):
            self.home.update((value, made.device_of_outputs) for value in made.outputs)
        return steps

    def _settle(self, control: Control) -> None:
        """Gives a control-flow node's outputs the home of what its bodies leave there."""
        bodies = [body.graph.outputs for body in control.bodies.values()]
        skip = 1 if control.node.op_type == "Loop" else 0
        for position, output in enumerate(control.node.outputs):
            homes = [self.home_of(outputs[position + skip]) for outputs in bodies]
            ids = {home.id for home in homes if home is not None}
            self.home[output] = next(h for h in homes if h) if len(ids) == 1 else HOST

    def home_of(self, value: ir.Value) -> Device | None:
        """The device of a value; ``None`` for a constant, which is on any that needs it."""
        if is_constant(value):
            return None
        return self.home.get(value, HOST)


def is_constant(value: ir.Value) -> bool:
    """Says whether a value is a weight that no caller can override."""
    return value.is_initializer() and not value.is_graph_input()


def weight_of(value: ir.Value | None) -> Weight | None:
    """Returns a constant's handle in the weights' registry; ``None`` for what has none."""
    tensor = value.const_value if value is not None and is_constant(value) else None
    return weight_in(tensor)


def constant_on(value: ir.Value, device: Device) -> Any:
    """Returns a constant's array on a device."""
    if (weight := weight_of(value)) is not None:
        return weight.on(device)
    assert value.const_value is not None, "the value is a constant"
    return device.upload(graphs.array_of(value.const_value))


def compile_segment(provider: Provider, segment: Segment) -> Sequence[Step]:
    """Asks a provider for the steps of a segment and checks that they make what is needed.

    Raises:
        EPFail: The provider failed or left out an output; a ``NodeRefused`` if the node is why.
        InvalidGraph: It failed, and a node violates its operator's schema.
    """
    try:
        compiled: Any = provider.compile(segment)
        steps = list(compiled) if isinstance(compiled, Iterable) else [compiled]
    except Stopped:
        raise
    except Exception as error:
        for node in segment.nodes:
            if wrong := misfit(node):
                raise InvalidGraph(wrong) from error
        from tenonnx.blame import blame  # for mistakes only

        kind = NodeRefused if isinstance(error, (ValueError, TypeError)) else EPFail
        raise kind(f"{provider.name} cannot compile {blame(segment.nodes, error)}") from error
    if not all(isinstance(step, Step) for step in steps):
        raise EPFail(
            f"{provider.name} compiled {graphs.label(segment.nodes[0])}: "
            f"expected a list of Steps, got {compiled!r}"
        )
    made = {value for step in steps for value in step.outputs}
    for value in segment.outputs:
        if value not in made:
            producer = value.producer()
            raise EPFail(
                f"{provider.name} compiled {graphs.label(producer) if producer else '?'} "
                f"without producing '{value.name}'"
            )
    return steps


def _last_uses(
    graph: ir.Graph | Ends, items: Sequence[Step | Control]
) -> tuple[tuple[ir.Value, ...], ...]:
    own: set[ir.Value] = set(graph.inputs)
    for item in items:
        own.update(item.outputs)
    own.difference_update(graph.outputs)
    last: list[list[ir.Value]] = [[] for _ in items]
    for index in reversed(range(len(items))):
        for value in (*_reads(items[index]), *items[index].outputs):
            if value in own:
                own.discard(value)
                last[index].append(value)
    return tuple(map(tuple, last))


def _reads(item: Step | Control) -> Iterator[ir.Value]:
    step = item if isinstance(item, Step) else item.step
    if step is not None:
        yield from (value for value in step.inputs if value is not None)
    if isinstance(item, Control):
        yield from graphs.captures(item.node) if item.step else graphs.inputs(item.node)
