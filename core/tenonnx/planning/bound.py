"""Outputs in buffers that the caller binds: written there by a step, or copied.

When a plan is made, ``direct_outputs`` finds the outputs whose steps can write into a buffer. In
each run ``choose_buffers`` decides which buffers they may write, because a buffer may be the memory
of an input (a decoder's cache is). ``deliver`` copies the other outputs. A provider takes part
through the calls that ``planning.writing`` knows.
"""

from __future__ import annotations

import bisect
import itertools
import weakref
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from tenonnx.by_name import cacheable
from tenonnx.errors import InvalidArgument
from tenonnx.planning.program import reads
from tenonnx.provider import HOST, Device, Step

if TYPE_CHECKING:
    from tenonnx.graph.values import ValueInfo
    from tenonnx.planning.program import Program

NDArray: TypeAlias = np.ndarray[Any, Any]


@cacheable
class DirectOutput(NamedTuple):
    """An output that a step can write into a buffer.

    Attributes:
        value: The output.
        position: Where it stands among the outputs.
        owned: Positions of the inputs that the step alone reads: the buffer may be their memory.
    """

    value: ValueInfo
    position: int
    owned: frozenset[int]

    @property
    def dtype(self) -> np.dtype[Any] | None:
        """The output's; ``None`` if the model does not say it."""
        return self.value.dtype


def direct_outputs(program: Program, targets: Sequence[Device] = ()) -> tuple[DirectOutput, ...]:
    """Return the outputs that a step of the main graph can write into a buffer.

    Args:
        program: The steps.
        targets: Where each output is to be; on the host if empty.
    """
    from tenonnx.planning.writing import writer

    wanted = set(program.outputs)
    makers = {
        value: item
        for item in program.block.items
        if isinstance(item, Step) and not wanted.isdisjoint(item.outputs)
        if writer(item.call, multiple=item.multiple) is not None
        for value in item.outputs
    }
    if not makers:
        return ()
    owned = _owned(program)
    places = zip(program.outputs, targets or [HOST] * len(program.outputs), strict=True)
    return tuple(
        DirectOutput(value, position, owned.get(value, frozenset()))
        for position, (value, target) in enumerate(places)
        if value in makers
        and makers[value].device_of_outputs.id == target.id
        and program.outputs.count(value) == 1
    )


def _owned(program: Program) -> dict[ValueInfo, frozenset[int]]:
    """Return the positions of the inputs that nothing reads but the step that makes an output.

    That is a part of a step, if that has any.
    """
    items = program.apart().block.items
    readers: dict[ValueInfo, set[int]] = {}
    for number, item in enumerate(items):
        for value in reads(item):
            readers.setdefault(value, set()).add(number)
    alone: dict[int, list[int]] = {}
    for position, (value, _) in enumerate(program.inputs):
        found = readers.get(value, set())
        if value not in program.outputs and len(found) == 1:
            alone.setdefault(min(found), []).append(position)
    return {
        value: frozenset(alone.get(number, ()))
        for number, item in enumerate(items)
        for value in item.outputs
    }


def choose_buffers(
    direct: Sequence[DirectOutput], inputs: Sequence[Any], buffers: Sequence[Any]
) -> list[Any]:
    """Return the buffers that may be written while inputs are still read; ``None`` for others.

    A buffer may be memory of an input only if the step that writes it is the input's only reader
    (``DirectOutput.owned``). Inputs are sorted by address, so that not each buffer is compared with
    each input: a decoder has hundreds of both.
    """
    if not direct:
        return []
    arrays = [(i, given) for i, given in enumerate(inputs) if isinstance(given, np.ndarray)]
    taken = sorted((*_extent(given), i) for i, given in arrays)
    # The greatest end so far: a long input may reach beyond inputs that begin behind it.
    ends = list(itertools.accumulate((end for _, end, _ in taken), max))
    places = {id(given): i for i, given in arrays}
    apart = all(end <= start for end, (start, _, _) in zip(ends, taken[1:], strict=False))

    def is_free(buffer: Any, output: DirectOutput) -> bool:
        if buffer.dtype != output.dtype:
            return False
        # The usual case of a cache in place: the buffer is an input, and no two inputs overlap.
        if apart and (place := places.get(id(buffer))) is not None:
            return place in output.owned
        low, high = _extent(buffer)
        n = bisect.bisect_left(taken, (high,))
        while n and ends[n - 1] > low:
            n -= 1
            if taken[n][1] > low and taken[n][2] not in output.owned:
                return False
        return True

    pairs = ((output, buffers[output.position]) for output in direct)
    return [b if b is not None and is_free(b, output) else None for output, b in pairs]


# Views whose addresses are remembered; beyond it all are forgotten, because most are gone by then.
MAX_VIEWS = 4096

# The addresses of views, by identity. A view never moves, and numpy takes a microsecond to find
# them; the weak reference tells a view from a later object of the same identity.
_views: dict[int, tuple[weakref.ref[NDArray], tuple[int, int]]] = {}


def _extent(array: NDArray) -> tuple[int, int]:
    """Return the addresses of an array's first byte and after its last."""
    number = id(array)
    if (known := _views.get(number)) is not None and known[0]() is array:
        return known[1]
    if array.flags.c_contiguous:
        start: int = array.__array_interface__["data"][0]
        found = start, start + array.nbytes
    else:
        found = np.lib.array_utils.byte_bounds(array)
    # An array that owns its data can be resized in place, and then has another address.
    if not array.flags.owndata:
        if len(_views) >= MAX_VIEWS:
            _views.clear()
        _views[number] = weakref.ref(array), found
    return found


class ArrayExtents:
    """Addresses of arrays, sorted, to find overlaps with other arrays.

    Args:
        arrays: Arrays of the host.
    """

    def __init__(self, arrays: Iterable[NDArray]) -> None:
        extents = sorted(map(_extent, arrays))
        self._starts = [start for start, _ in extents]
        self._ends = list(itertools.accumulate((end for _, end in extents), max))

    def meets(self, array: NDArray) -> bool:
        """Return whether an array may have bytes in common with one of them."""
        low, high = _extent(array)
        before = bisect.bisect_left(self._starts, high)
        return before > 0 and self._ends[before - 1] > low


def deliver(output: Any, buffer: Any, name: str | None) -> Any:
    """Return the buffer with an output in it; the output itself if there is none on the host.

    Args:
        output: It.
        buffer: An array of the host, or ``None``.
        name: The output's.

    Raises:
        InvalidArgument: They differ in shape or dtype.
    """
    if output is buffer or not isinstance(buffer, np.ndarray):
        return output
    found = np.asarray(output)
    if found.shape != buffer.shape or found.dtype != buffer.dtype:
        raise InvalidArgument(
            f"output '{name}' is {found.dtype}{list(found.shape)}; the buffer bound to it is "
            f"{buffer.dtype}{list(buffer.shape)}",
            hint="bind a buffer of that shape and type, or none to have one made",
        )
    np.copyto(buffer, found)
    return buffer
