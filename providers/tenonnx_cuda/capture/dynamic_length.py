"""The lengths of caches, which differ from run to run and on which calls do not depend."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias

from tenonnx_cuda.kv_cache import ADDRESS_MODULUS, Room, room_of


class DynamicInputs(NamedTuple):
    """Inputs that may be longer another time.

    Attributes:
        length: Of the caches.
        known: What a call may depend on of each besides, by its position.
        rooms: Of the caches, by their positions.
    """

    length: int
    known: dict[int, Any]
    rooms: dict[int, Room]


NO_DYNAMIC_INPUTS: Final = DynamicInputs(0, {}, {})


class Limit(NamedTuple):
    """A condition on a number on the host under which its value makes no difference.

    Attributes:
        of: An array, or the position of an input; ``None`` if it is not known, and never holds.
        axis: The axis that is meant.
        unlike: The number is another than its length; otherwise, it is no more than that.
    """

    of: Any
    axis: int
    unlike: bool = False

    def holds(self, number: int, inputs: Sequence[Any]) -> bool:
        """Return whether a number makes no difference."""
        array = inputs[self.of] if isinstance(self.of, int) else self.of
        if array is None:
            return False
        length = array.shape[self.axis]
        return bool(number != length if self.unlike else number <= length)


# For the positions of numbers on the host that only say how much there may be.
Limits: TypeAlias = Mapping[int, Sequence[Limit]]


def within(limits: Limits, inputs: Sequence[Any]) -> frozenset[int]:
    """Return the positions of the numbers that make no difference."""
    return frozenset(
        i
        for i, several in limits.items()
        if all(limit.holds(inputs[i].item(), inputs) for limit in several)
    )


@dataclass(frozen=True)
class DynamicCall:
    """A call, and what it does not depend on.

    Where the caches among its inputs are in rooms, all that it does with how long they are is to
    claim what is behind them, and to hand ``DynamicNumber`` numbers to kernels.

    Attributes:
        call: Takes the inputs.
        caches: Inputs that get longer from run to run, all by as much, and axes of theirs.
        along: Others.
        numbers: Inputs on the host that say how long; besides, which of the limits hold counts.
        limits: For all numbers within them it does the same.
        changing: Inputs that change in every run and take little work to make.
    """

    call: Callable[..., Any]
    caches: Mapping[int, int] = field(default_factory=dict)
    along: Mapping[int, int] = field(default_factory=dict)
    numbers: tuple[int, ...] = ()
    limits: Limits = field(default_factory=dict)
    changing: Sequence[int] = ()

    def look(self, inputs: Sequence[Any]) -> DynamicInputs:
        """Return what may grow of some inputs; nothing if no caches are there, or not in rooms."""
        rooms: dict[int, Room] = {}
        lengths = set()
        for i, axis in self.caches.items():
            cache = inputs[i] if i < len(inputs) else None
            if cache is None or (room := room_of(cache, axis)) is None:
                return NO_DYNAMIC_INPUTS
            rooms[i] = room
            lengths.add(int(cache.shape[axis]))
        if len(lengths) != 1:
            return NO_DYNAMIC_INPUTS
        (length,) = lengths
        known: dict[int, Any] = {i: room.key for i, room in rooms.items()}
        for i, axis in self.along.items():
            x = inputs[i] if i < len(inputs) else None
            if x is not None and x.ndim:
                place = axis % x.ndim
                sizes = x.shape[:place], x.shape[place] - length, x.shape[place + 1 :]
                lies = x.flags.c_contiguous or x.strides
                known[i] = (*sizes, lies, x.dtype, x.data.ptr % ADDRESS_MODULUS)
        for i in self.numbers:
            number = int(inputs[i].item())
            held = tuple(limit.holds(number, inputs) for limit in self.limits.get(i, ()))
            known[i] = inputs[i].shape, inputs[i].dtype, number - length, held
        return DynamicInputs(length, known, rooms)

    def __call__(self, *inputs: Any, **buffers: Any) -> Any:
        """Run the call."""
        return self.call(*inputs, **buffers)
