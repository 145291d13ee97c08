"""Calls whose caches get longer from run to run: what of their inputs they depend on, then."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from tenonnx_cuda.kv_cache import ALIGNED, Room, room_of


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


NONE: Final = DynamicInputs(0, {}, {})


@dataclass(frozen=True)
class DynamicCall:
    """A call whose inputs get longer from run to run, all by as much.

    Where the caches among them are in rooms, all that it does with how long they are is to claim
    what is behind them, and to hand ``DynamicNumber`` numbers to kernels.

    Attributes:
        call: Takes the inputs.
        caches: Inputs, and axes of theirs.
        along: Others.
        numbers: Inputs on the host that say how long.
        also: Returns what else it depends on of what those say.
    """

    call: Callable[..., Any]
    caches: Mapping[int, int]
    along: Mapping[int, int] = field(default_factory=dict)
    numbers: Sequence[int] = ()
    also: Callable[[Sequence[Any]], Any] = lambda _: None

    def look(self, inputs: Sequence[Any]) -> DynamicInputs:
        """Returns what may grow of some inputs; nothing if no caches are there, or not in rooms."""
        rooms: dict[int, Room] = {}
        lengths = set()
        for i, axis in self.caches.items():
            cache = inputs[i] if i < len(inputs) else None
            if cache is None or (room := room_of(cache, axis)) is None:
                return NONE
            rooms[i] = room
            lengths.add(int(cache.shape[axis]))
        if len(lengths) != 1:
            return NONE
        (length,) = lengths
        known: dict[int, Any] = {i: room.key for i, room in rooms.items()}
        for i, axis in self.along.items():
            x = inputs[i] if i < len(inputs) else None
            if x is not None and x.ndim:
                place = axis % x.ndim
                sizes = x.shape[:place], x.shape[place] - length, x.shape[place + 1 :]
                lies = x.flags.c_contiguous or x.strides
                known[i] = (*sizes, lies, x.dtype, x.data.ptr % ALIGNED)
        for i in self.numbers:
            said = int(inputs[i].item()) - length
            known[i] = inputs[i].shape, inputs[i].dtype, said, self.also(inputs)
        return DynamicInputs(length, known, rooms)

    def __call__(self, *inputs: Any, **buffers: Any) -> Any:
        """Runs the call."""
        return self.call(*inputs, **buffers)
