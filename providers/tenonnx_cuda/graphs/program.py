"""Steps that run as one call, for a recording to be made of it."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tenonnx.graph import array_of
from tenonnx.planning.writing import Writer, writer
from tenonnx.provider import HOST, Device, Step
from tenonnx.weights.tensors import WeightTensor
from tenonnx_cuda.graphs.sized import Sized
from tenonnx_cuda.noting import hold
from tenonnx_cuda.takes import shared

if TYPE_CHECKING:
    import onnx_ir as ir

    from tenonnx_cuda.graphs.grouping import Group


@dataclass(frozen=True)
class Limit:
    """What of a number makes no difference.

    Attributes:
        of: An array, or the position of an input.
        axis: The axis that is meant.
        unlike: The number is another than its length; otherwise, it is no more than that.
    """

    of: Any
    axis: int
    unlike: bool

    def holds(self, number: int, inputs: Sequence[Any]) -> bool:
        """Says whether a number makes no difference."""
        array = inputs[self.of] if isinstance(self.of, int) else self.of
        if array is None:
            return False
        length = array.shape[self.axis]
        return bool(number != length if self.unlike else number <= length)


@dataclass(frozen=True)
class Line:
    """A step of a program.

    Attributes:
        step: It.
        taken: Slots of its inputs.
        given: Slots of its outputs.
        results: Which of the program's outputs its own are, or ``None``s.
        owned: The program's inputs that it alone reads: a buffer may be their memory.
    """

    step: Step
    taken: tuple[int | None, ...]
    given: tuple[int, ...]
    results: tuple[int | None, ...]
    owned: frozenset[int]

    @functools.cached_property
    def write(self) -> Writer | None:
        """Its call with buffers first, if it can write there."""
        return writer(self.step.call, multiple=self.step.multiple)

    def buffers(self, outs: Sequence[Any], read: Sequence[set[int]]) -> Any:
        """Returns the buffers for its outputs that it may write to, as it takes them.

        Args:
            outs: The program's.
            read: The inputs that each has memory in common with.
        """
        free = [None if i is None or read[i] - self.owned else outs[i] for i in self.results]
        return tuple(free) if self.step.multiple else free[0]


class Program:
    """A group's steps as one call.

    Args:
        group: The steps.
        outputs: The values that something outside reads.

    Attributes:
        limits: For the positions of inputs that only say how much there may be.
    """

    def __init__(self, group: Group, outputs: Sequence[ir.Value]) -> None:
        self.inputs = tuple(group.inputs)
        self.outputs = tuple(outputs)
        self._slots: dict[tuple[Any, bool], int] = {key: i for i, key in enumerate(self.inputs)}
        self._constants: dict[int, Any] = {}
        places = [self._place(step) for step in group.steps]
        self._results = [self._slots[value, group.made[value]] for value in self.outputs]
        users = Counter(slot for place in places for slot in {*place[0], *place[1]})
        self._lines = [
            self._line(step, place, users) for step, place in zip(group.steps, places, strict=True)
        ]
        self._dead = self._last_uses()
        self._kept = [x for x in self._constants.values() if not isinstance(x, np.ndarray)]
        self.limits = self._limits()

    def _place(self, step: Step) -> tuple[tuple[int | None, ...], tuple[int, ...]]:
        """Returns the slots of a step's inputs and outputs."""
        taken = tuple(
            None if value is None else self._slot(value, step.device_of_input(i))
            for i, value in enumerate(step.inputs)
        )
        on_host, slots = step.device_of_outputs is HOST, self._slots
        return taken, tuple(slots.setdefault((v, on_host), len(slots)) for v in step.outputs)

    def _slot(self, value: ir.Value, where: Device) -> int:
        key = value, where is HOST
        if key not in self._slots:
            slot = self._slots[key] = len(self._slots)
            self._constants[slot] = constant_on(value, where)
        return self._slots[key]

    def _line(self, step: Step, place: Any, users: Mapping[int | None, int]) -> Line:
        taken, given = place
        return Line(
            step=step,
            taken=taken,
            given=given,
            results=tuple(
                self._results.index(slot) if slot in self._results else None for slot in given
            ),
            owned=frozenset(i for i in taken if i is not None and users[i] == 1),
        )

    def _last_uses(self) -> list[list[int]]:
        seen = {*self._results, *self._constants}
        dead: list[list[int]] = []
        for line in reversed(self._lines):
            last = {slot for slot in (*line.taken, *line.given) if slot is not None} - seen
            seen |= last
            dead.insert(0, sorted(last))
        return dead

    def _limits(self) -> dict[int, list[Limit]]:
        found: dict[int, list[Limit]] = {}
        exact = set()
        for line in self._lines:
            sized = line.step.call if isinstance(line.step.call, Sized) else None
            for position, slot in enumerate(line.taken):
                if slot is None or slot >= len(self.inputs) or not self.inputs[slot][1]:
                    continue
                if sized is None or position != sized.number or not sized.bounds:
                    exact.add(slot)
                    continue
                lengths = [(*bound, False) for bound in sized.bounds]
                lengths += [(*other, True) for other in sized.unlike]
                for i, axis, unlike in lengths:
                    known = line.taken[i]
                    if known is None or not self._is_known(known):
                        exact.add(slot)
                        break
                    of = self._constants.get(known, known)
                    found.setdefault(slot, []).append(Limit(of, axis, unlike))
        return {slot: lengths for slot, lengths in found.items() if slot not in exact}

    def spared(self, inputs: Sequence[Any]) -> frozenset[int]:
        """Returns the positions of numbers that make no difference."""
        return frozenset(
            i
            for i, limits in self.limits.items()
            if all(limit.holds(inputs[i].item(), inputs) for limit in limits)
        )

    def reader(self, step: Step) -> Callable[[Sequence[Any]], list[Any]]:
        """Returns what says, of the program's inputs, what a step takes; ``None`` for the rest."""
        (slots,) = (line.taken for line in self._lines if line.step is step)

        def read(inputs: Sequence[Any]) -> list[Any]:
            known = {**dict(enumerate(inputs)), **self._constants}
            return [None if slot is None else known.get(slot) for slot in slots]

        return read

    def step(self, call: Any, device: Device, parts: tuple[Step, ...] = ()) -> Step:
        """Returns a step that does it by a call."""
        return Step(
            call=call,
            inputs=tuple(value for value, _ in self.inputs),
            outputs=self.outputs,
            nodes=tuple(node for line in self._lines for node in line.step.nodes),
            multiple=True,
            device=device,
            host=tuple(i for i, (_, on_host) in enumerate(self.inputs) if on_host),
            parts=parts,
        )

    def _is_known(self, slot: int) -> bool:
        return slot < len(self.inputs) or slot in self._constants

    def __call__(self, *inputs: Any, _outs: Sequence[Any] = ()) -> tuple[Any, ...]:
        """Returns the outputs, in the arrays ``_outs`` as far as steps can write there."""
        outs = _outs or [None] * len(self._results)
        read = in_common(inputs, outs) if any(out is not None for out in outs) else None
        values: list[Any] = [*inputs, *[None] * (len(self._slots) - len(inputs))]
        for slot, constant in self._constants.items():
            values[slot] = constant
        hold(*self._kept)
        for line, dead in zip(self._lines, self._dead, strict=True):
            taken = [None if slot is None else values[slot] for slot in line.taken]
            try:
                if read is not None and line.write is not None:
                    result = line.write(line.buffers(outs, read), *taken)
                else:
                    result = line.step.call(*taken)
            except Exception as error:
                vars(error).setdefault("step", line.step)
                raise
            made = result if line.step.multiple else (result,)
            for slot, value in zip(line.given, made, strict=False):
                values[slot] = value
            for slot in dead:
                values[slot] = None
        return tuple(values[slot] for slot in self._results)


def in_common(inputs: Sequence[Any], outs: Sequence[Any]) -> list[set[int]]:
    """Returns the positions of the inputs that each buffer has memory in common with."""
    found: list[set[int]] = [set() for _ in outs]
    for i, j, _ in shared([*inputs, *outs]):
        if i < len(inputs) <= j:
            found[j - len(inputs)].add(i)
    return found


def constant_on(value: ir.Value, device: Device) -> Any:
    """Returns a constant's array on a device."""
    tensor = value.const_value
    assert tensor is not None, "the value is a constant"
    if isinstance(tensor, WeightTensor):
        return tensor.weight.on(device)
    return device.upload(array_of(tensor))
