"""Which consecutive steps can be recorded together, and how they run as one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from tenonnx.graph import array_of
from tenonnx.planning.lower import is_constant
from tenonnx.provider import HOST, Device, Step
from tenonnx.weights.tensors import WeightTensor

if TYPE_CHECKING:
    import onnx_ir as ir

NEVER: Final = frozenset(
    {
        *("NonZero", "Unique", "Compress"),  # the host has to know how much there is
        *("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"),
        *("Bernoulli", "Multinomial", "Dropout"),  # replayed, they would draw the same numbers
        # cupy leaves them to libraries that wait for the device, or that it does not let record.
        *("DFT", "Det", "Einsum", "Inverse", "Rfft", "Irfft", "STFT", "TopK"),
        *("SplitToSequence", "ConcatFromSequence", "Optional", "OptionalGetElement"),
        # They bring arrays from the host, which a replay would not read anew.
        *("AffineGrid", "Constant", "DeformConv", "GroupQueryAttention", "Imputer"),
        *("MatMulBnb4", "QLinearAveragePool", "Resize", "RoiAlign", "SparseAttention", "Upsample"),
    }
)
"""Operators whose work cannot be repeated as it was."""

LEAST: Final = 2
"""Steps from which on a recording pays."""

Place = tuple["ir.Value", str]


@dataclass
class Group:
    """Consecutive steps, and where the values are that they exchange.

    Attributes:
        steps: In order.
        inputs: Values from outside, and whether each is wanted on the host.
        made: Values that its steps make, and whether they are on the host.
    """

    steps: list[Step] = field(default_factory=list)
    inputs: dict[tuple[ir.Value, bool], None] = field(default_factory=dict)
    made: dict[ir.Value, bool] = field(default_factory=dict)

    def takes(self, step: Step) -> bool:
        """Says whether a step needs nothing of the group's moved between host and device."""
        return all(
            value not in self.made or self.made[value] == (step.device_of_input(i) is HOST)
            for i, value in enumerate(step.inputs)
            if value is not None
        )

    def add(self, step: Step) -> None:
        """Adds a step."""
        self.steps.append(step)
        for i, value in enumerate(step.inputs):
            if value is not None and value not in self.made and not is_constant(value):
                self.inputs[value, step.device_of_input(i) is HOST] = None
        on_host = step.device_of_outputs is HOST
        self.made.update((value, on_host) for value in step.outputs)


def groups(steps: Sequence[Step]) -> Iterator[Group]:
    """Cuts steps into groups; one that cannot be recorded is alone."""
    group = Group()
    for step in steps:
        alone = not recordable(step)
        if group.steps and (alone or not group.takes(step)):
            yield group
            group = Group()
        group.add(step)
        if alone:
            yield group
            group = Group()
    if group.steps:
        yield group


def recordable(step: Step) -> bool:
    """Says whether a step does the same whenever its inputs have the same shapes."""
    return not any(
        node.op_type in NEVER or node.op_type.startswith("Sequence") for node in step.nodes
    )


class Program:
    """A group's steps as one call.

    Args:
        group: The steps.
        outputs: The values that something outside reads.
    """

    def __init__(self, group: Group, outputs: Sequence[ir.Value]) -> None:
        self.inputs = tuple(group.inputs)
        self.outputs = tuple(outputs)
        slots: dict[tuple[Any, bool], int] = {key: i for i, key in enumerate(self.inputs)}
        self._constants: dict[int, Any] = {}
        self._lines: list[tuple[Any, tuple[int | None, ...], tuple[int, ...], bool]] = []
        for step in group.steps:
            taken = []
            for i, value in enumerate(step.inputs):
                where = step.device_of_input(i)
                taken.append(None if value is None else self._slot(slots, value, where))
            on_host = step.device_of_outputs is HOST
            given = tuple(slots.setdefault((v, on_host), len(slots)) for v in step.outputs)
            self._lines.append((step.call, tuple(taken), given, step.multiple))
        self._results = [slots[value, group.made[value]] for value in self.outputs]
        self._count = len(slots)
        self._dead = self._last_uses()

    def _slot(self, slots: dict[tuple[Any, bool], int], value: ir.Value, where: Device) -> int:
        key = value, where is HOST
        if key not in slots:
            slot = slots[key] = len(slots)
            self._constants[slot] = constant_on(value, where)
        return slots[key]

    def _last_uses(self) -> list[list[int]]:
        seen = {*self._results, *self._constants}
        dead: list[list[int]] = []
        for _, taken, given, _ in reversed(self._lines):
            last = {slot for slot in (*taken, *given) if slot is not None} - seen
            seen |= last
            dead.insert(0, sorted(last))
        return dead

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        """Returns the outputs."""
        values: list[Any] = [*inputs, *[None] * (self._count - len(inputs))]
        for slot, constant in self._constants.items():
            values[slot] = constant
        for (call, taken, given, multiple), dead in zip(self._lines, self._dead, strict=True):
            result = call(*(None if slot is None else values[slot] for slot in taken))
            for slot, value in zip(given, result if multiple else (result,), strict=False):
                values[slot] = value
            for slot in dead:
                values[slot] = None
        return tuple(values[slot] for slot in self._results)


def constant_on(value: ir.Value, device: Device) -> Any:
    """Returns a constant's array on a device."""
    tensor = value.const_value
    assert tensor is not None, "the value is a constant"
    if isinstance(tensor, WeightTensor):
        return tensor.weight.on(device)
    return device.upload(array_of(tensor))
