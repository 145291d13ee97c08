"""Consecutive steps that are repeated as one: what lies between them is no array of Python's.

They are traced together, as a step by itself is; and by themselves as well, for runs in which the
inputs of one lie as they did before and those of another do not.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from tenonnx.graph.values import ValueInfo
from tenonnx.planning import spans
from tenonnx.provider import Step
from tenonnx_cuda.capture.dynamic_length import DynamicCall, Limit
from tenonnx_cuda.capture.program import DeviceProgram
from tenonnx_cuda.capture.replay import Look, Replayed, dynamic_of
from tenonnx_cuda.device import CudaDevice


class Role(NamedTuple):
    """The way in which an input states the length of caches.

    Attributes:
        kind: Of ``DynamicCall``: ``caches``, ``along`` or ``numbers``.
        axis: The one along which it gets longer.
    """

    kind: str
    axis: int | None


@dataclass
class FusedSpan(spans.Span):
    """Steps to be repeated as one.

    Where they go on from caches, nothing in it may depend on how long those are, but for the steps
    that are told by ``DynamicNumber`` numbers.

    Attributes:
        roles: Of inputs that say how long caches are.
        longer: Those, and what is as long as caches of what steps make.
    """

    roles: dict[ValueInfo, Role] = field(default_factory=dict)
    longer: set[ValueInfo | None] = field(default_factory=set)

    def takes(self, step: Step) -> bool:
        """Return whether all that is longer another time comes from outside, and is known to be."""
        roles = roles_of(step)
        plain = {value for value, _ in self.inputs} - self.roles.keys()
        return (
            super().takes(step)
            and self.longer.isdisjoint(set(step.inputs) - roles.keys())
            and roles.keys().isdisjoint(plain | self.made.keys())
            and all(self.roles.get(value, role) == role for value, role in roles.items())
        )

    def add(self, step: Step) -> None:
        """Add a step."""
        super().add(step)
        if roles := roles_of(step):
            self.roles |= roles
            self.longer.update(roles)
            # Of several outputs the first one is what attends.
            self.longer.update(step.outputs[1:] or step.outputs)


# Runs in a row without a repetition, after which a group's steps are looked at one by one.
MAX_RUNS_WITHOUT_REPLAY: Final = 8

# Of such runs of one step, while kernels are compiled, and what they do is traced.
MAX_MISSES: Final = 2


def fuse_steps(
    steps: Sequence[Step],
    escaping: frozenset[Any],
    device: CudaDevice,
    alike: Callable[[Step], object] = lambda _: None,
) -> list[Step]:
    """Return steps as fewer that are repeated as one; those that cannot be, as they are.

    Args:
        steps: In order.
        escaping: Values that something else reads.
        device: Where they run.
        alike: Returns what steps that may be one have in common.
    """

    def one(group: FusedSpan, outputs: tuple[ValueInfo, ...]) -> Step | None:
        if group.made[outputs[0]]:
            return None
        program = DeviceProgram(group, outputs)
        return program.step(FusedSteps(group, program, device), device, tuple(group.steps))

    runs = (tuple(run) for _, run in itertools.groupby(steps, alike))
    cut = [group for run in runs for group in spans.cut(run, is_replayed, FusedSpan)]
    return spans.as_one(cut, escaping, is_replayed, one)


class FusedSteps(Replayed):
    """Steps that are repeated as one, unless some of them keep the others from it.

    Args:
        group: They.
        program: The steps as one call.
        device: Where.
    """

    def __init__(self, group: FusedSpan, program: DeviceProgram, device: CudaDevice) -> None:
        super().__init__(dynamic_program(group, program), device.platform)
        self._steps, self._device = group.steps, device
        self._inputs, self._outputs = program.inputs, program.outputs
        self._is_one = True

    def _look(self, inputs: Sequence[Any], buffers: Mapping[str, Any]) -> Look:
        return super()._look(inputs, buffers) if self._is_one else Look(inputs)

    def _done(self, look: Look, inputs: Sequence[Any], buffers: Mapping[str, Any]) -> Any:
        result = super()._done(look, inputs, buffers)
        if self._is_one and self.missed >= MAX_RUNS_WITHOUT_REPLAY:
            self._part()
        return result

    def _part(self) -> None:
        """Part the steps that were repeated lately from those that were not."""
        calls = [step.call for step in self._steps if isinstance(step.call, Replayed)]
        hinder = {call for call in calls if call.missed > MAX_MISSES}
        self.missed = 0
        if 0 < len(hinder) < len(calls):
            parts = spans.Span(inputs=dict.fromkeys(self._inputs))
            for step in fuse_steps(
                self._steps, frozenset(self._outputs), self._device, lambda s: s.call in hinder
            ):
                parts.add(step)
            self._call, self._is_one = DeviceProgram(parts, self._outputs), False
            self.dynamic = DynamicCall(self._call)


def is_replayed(step: Step) -> bool:
    """Return whether a step is repeated, or computes with shapes alone: those of its inputs."""
    # No run is told from another by a constant.
    if any(value.constant is not None for value in roles_of(step)):
        return False
    return isinstance(step.call, Replayed) or step.host == "all" or step.host_output


def roles_of(step: Step) -> dict[ValueInfo, Role]:
    """Return those of a step's inputs that say how long caches are."""
    if (dynamic := dynamic_of(step)) is None or not dynamic.caches:
        return {}
    found = [(i, Role("caches", axis)) for i, axis in dynamic.caches.items()]
    found += [(i, Role("along", axis)) for i, axis in dynamic.along.items()]
    found += [(i, Role("numbers", None)) for i in dynamic.numbers]
    given = [(step.inputs[i], role) for i, role in found if i < len(step.inputs)]
    return {value: role for value, role in given if value is not None}


def dynamic_program(group: FusedSpan, program: DeviceProgram) -> DynamicCall:
    """Return a group's program, and what it does not depend on: what its steps do not."""
    places = {key: i for i, key in enumerate(program.inputs)}
    found: dict[str, dict[int, Any]] = {"caches": {}, "along": {}, "numbers": {}}
    for value, role in group.roles.items():
        found[role.kind][places[value, role.kind == "numbers"]] = role.axis
    numbers, limits = tuple(found["numbers"]), program.limits
    asked = (limit for n in numbers for limit in limits.get(n, (Limit(None, 0),)))
    if any(limit.of is None and not limit.unlike for limit in asked):
        return DynamicCall(program, limits=limits)  # whether what is longer fits is not known
    return DynamicCall(program, found["caches"], found["along"], numbers, limits=limits)
