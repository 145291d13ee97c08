"""The steps of a model as data: all that running it, naming it and keeping it is made of."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tenonnx.by_name import cacheable
from tenonnx.graph.values import GraphInfo, NodeInfo, ValueInfo
from tenonnx.planning.step import HOST, Device, Step

if TYPE_CHECKING:
    from tenonnx.planning.bound import DirectOutput


@cacheable
class Control(NamedTuple):
    """A node with graphs inside, compiled.

    Attributes:
        node: The node.
        reads: The values that it and its bodies read from outside them.
        attributes: Its integers, and lists of them, by name.
        bodies: By attribute name.
        step: The step that calls the bodies; ``None`` for control flow, which is the runtime's own.
    """

    node: NodeInfo
    reads: tuple[ValueInfo, ...]
    attributes: Mapping[str, Any]
    bodies: Mapping[str, Block]
    step: Step | None = None

    @property
    def outputs(self) -> Sequence[ValueInfo]:
        """Values the node produces."""
        return self.node.outputs if self.step is None else self.step.outputs


@cacheable
class Block(NamedTuple):
    """A graph as steps in order. ``last_use[i]`` are the values that item ``i`` reads last."""

    graph: GraphInfo
    items: tuple[Step | Control, ...]
    last_use: tuple[tuple[ValueInfo, ...], ...]

    @classmethod
    def of(cls, graph: GraphInfo, items: Sequence[Step | Control]) -> Block:
        """Return a block of steps."""
        return cls(graph, tuple(items), _last_uses(graph, items))

    def steps(self) -> Iterator[Step]:
        """Yield the steps of the block and of the blocks inside it."""
        for item in self.items:
            if isinstance(item, Step):
                yield item
            else:
                for body in item.bodies.values():
                    yield from body.steps()
                if item.step is not None:
                    yield item.step

    def apart(self) -> Block:
        """Return a block of the parts of those steps that have any."""
        items: list[Step | Control] = []
        for item in self.items:
            if isinstance(item, Step):
                items += item.parts or (item,)
            else:
                bodies = {name: body.apart() for name, body in item.bodies.items()}
                items.append(item._replace(bodies=bodies))
        return Block.of(self.graph, items)

    def is_read(self, value: ValueInfo) -> bool:
        """Return whether steps of the block or inside it read a value, or it is an output."""
        return value in self.graph.outputs or any(value in last for last in self.last_use)


@cacheable
class Program:
    """The steps of a graph.

    Attributes:
        inputs: The graph's inputs and where they are; one that is in two places comes twice.
        outputs: The outputs to compute.
        block: The steps.
        homes: Where each value appears first that does not on the host.
    """

    def __init__(
        self,
        inputs: Sequence[tuple[ValueInfo, Device]],
        outputs: Sequence[ValueInfo],
        block: Block,
        homes: Mapping[ValueInfo, Device],
    ) -> None:
        self.inputs, self.outputs = tuple(inputs), tuple(outputs)
        self.block, self.homes = block, homes

    @classmethod
    def of_steps(
        cls,
        steps: Sequence[Step],
        inputs: Sequence[tuple[ValueInfo, Device]],
        outputs: Sequence[ValueInfo],
    ) -> Program:
        """Return a program of steps, and of where its inputs are."""
        homes = dict(homes_of(steps))
        homes.update((value, device) for value, device in inputs if device.id != HOST.id)
        graph = GraphInfo("", tuple(value for value, _ in inputs), tuple(outputs))
        return cls(tuple(inputs), tuple(outputs), Block.of(graph, steps), homes)

    @functools.cached_property
    def direct(self) -> tuple[DirectOutput, ...]:
        """The outputs that steps can write into buffers of the host."""
        from tenonnx.planning.bound import direct_outputs

        return direct_outputs(self)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for a cached plan, with what is found by making all single steps."""
        _ = self.direct
        return vars(self)

    def apart(self) -> Program:
        """Return a program of the parts of those steps that have any."""
        if not any(step.parts for step in self.block.steps()):
            return self
        return Program(self.inputs, self.outputs, self.block.apart(), self.homes)

    def narrowed(self, outputs: Sequence[ValueInfo]) -> Program:
        """Return a program of those steps, apart, that some of the graph outputs need."""
        # Apart, because a step of several parts computes all of its outputs, wanted or not.
        needed = set(outputs)
        items: list[Step | Control] = []
        for item in reversed(self.apart().block.items):
            if not needed.isdisjoint(item.outputs):
                items.append(item)
                needed.update(reads(item))
        block = Block.of(self.block.graph._replace(outputs=tuple(outputs)), items[::-1])
        return Program(self.inputs, outputs, block, self.homes)

    def started_on(self, devices: Sequence[Device]) -> Program:
        """Return a program whose inputs appear on these devices."""
        inputs = tuple(zip(self.block.graph.inputs, devices, strict=True))
        homes = {**self.homes, **dict(inputs)}
        return Program(inputs, self.outputs, self.block, homes)

    def home_of(self, value: ValueInfo) -> Device | None:
        """Return the device of a value; ``None`` for a constant, which is on any that needs it."""
        return None if value.constant is not None else self.homes.get(value, HOST)


def homes_of(steps: Sequence[Step]) -> Iterator[tuple[ValueInfo, Device]]:
    """Yield what steps and their parts make elsewhere than on the host, and where."""
    for step in steps:
        if step.device.id != HOST.id:
            # A part may leave its result on the host where the step as one does not.
            for made in (step, *step.parts):
                device = made.device_of_outputs
                yield from ((value, device) for value in made.outputs)


def reads(item: Step | Control) -> Iterator[ValueInfo]:
    """Yield what a step or node reads."""
    step = item if isinstance(item, Step) else item.step
    if step is not None:
        yield from (value for value in step.inputs if value is not None)
    if isinstance(item, Control):
        yield from item.reads


def constant_on(value: ValueInfo, device: Device) -> Any:
    """Return a constant's array on a device."""
    constant = value.constant
    if isinstance(constant, np.ndarray):
        return device.upload(constant)
    assert constant is not None, "the value is a constant"
    return constant.on(device)


def _last_uses(
    graph: GraphInfo, items: Sequence[Step | Control]
) -> tuple[tuple[ValueInfo, ...], ...]:
    own: set[ValueInfo] = set(graph.inputs)
    for item in items:
        own.update(item.outputs)
    own.difference_update(graph.outputs)
    # From the end on, the first item that has a value is the last one to use it. A result that
    # nobody reads is used last by its own maker, and so dropped at once.
    last: list[list[ValueInfo]] = [[] for _ in items]
    for index in reversed(range(len(items))):
        for value in (*reads(items[index]), *items[index].outputs):
            if value in own:
                own.discard(value)
                last[index].append(value)
    return tuple(map(tuple, last))
