"""Consecutive steps that become one, and which of them can be recorded."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeVar

from tenonnx.planning.lower import is_constant
from tenonnx.provider import HOST, Step
from tenonnx.traits import RANDOM
from tenonnx_cuda.graphs.sized import Sized

if TYPE_CHECKING:
    import onnx_ir as ir

NEVER: Final = RANDOM | frozenset(
    {
        *("NonZero", "Unique", "Compress"),  # the host has to know how much there is
        # cupy leaves them to libraries that wait for the device, or that it does not let record.
        *("DFT", "Det", "Einsum", "Inverse", "Rfft", "Irfft", "STFT", "TopK"),
        *("SplitToSequence", "ConcatFromSequence", "Optional", "OptionalGetElement"),
        # They bring arrays from the host, which a replay would not read anew.
        *("AffineGrid", "Constant", "DeformConv", "Imputer"),
        *("MatMulBnb4", "QLinearAveragePool", "RoiAlign", "SparseAttention", "Upsample"),
    }
)
"""Operators whose work cannot be repeated as it was: random ones would draw the same numbers."""

LENGTHS: Final = frozenset({"GroupQueryAttention"})
"""Those that are told lengths by the host, unless a kernel reads them on the device."""

LEAST: Final = 2
"""Steps from which on it pays to make one of them."""

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


G = TypeVar("G", bound=Group)


def lengths_first(steps: Sequence[Step]) -> tuple[list[Step], list[Step]]:
    """Returns the steps that make what changes in every run of a decoder; and the others.

    Such as how many tokens there are by now, of a mask that gets longer.
    """
    wanted = {
        step.inputs[position]
        for step in steps
        if isinstance(step.call, Sized)
        for position in step.call.lengths
    }
    first: list[Step] = []
    for step in reversed(steps):
        if not wanted.isdisjoint(step.outputs):
            first.insert(0, step)
            wanted.update(step.inputs)
    makers = {id(step) for step in first}
    return first, [step for step in steps if id(step) not in makers]


def groups(
    steps: Sequence[Step], wanted: Callable[[Step], bool], kind: Callable[[], G]
) -> Iterator[G]:
    """Cuts steps into groups of a kind; one that is not wanted there is alone."""
    group = kind()
    for step in steps:
        alone = not wanted(step)
        if group.steps and (alone or not group.takes(step)):
            yield group
            group = kind()
        group.add(step)
        if alone:
            yield group
            group = kind()
    if group.steps:
        yield group


def as_one(
    cut: Sequence[G],
    escaping: Iterable[ir.Value],
    wanted: Callable[[Step], bool],
    one: Callable[[G, tuple[ir.Value, ...]], Step],
) -> list[Step]:
    """Returns a step for each group of several that leaves what it makes on the device.

    Args:
        cut: Groups, in order.
        escaping: Values that something outside of all reads.
        wanted: Says whether a step may be in one.
        one: Makes a step of a group, and of what others read of it.
    """
    later = set(escaping)
    found: list[Step] = []
    for group in reversed(cut):
        outputs = tuple(value for value in group.made if value in later)
        later.update(value for value, _ in group.inputs)
        on_host = {group.made[value] for value in outputs}
        if len(group.steps) < LEAST or not wanted(group.steps[0]) or on_host != {False}:
            found[:0] = group.steps
        else:
            found.insert(0, one(group, outputs))
    return found


def recordable(step: Step) -> bool:
    """Says whether a step does the same whenever its inputs have the same shapes."""
    if isinstance(step.call, Sized):
        return bool(step.call.bounds)
    return not any(
        node.op_type in NEVER | LENGTHS or node.op_type.startswith("Sequence")
        for node in step.nodes
    )
