"""Outputs in buffers that the caller gives: written at once, or copied."""

from __future__ import annotations

import bisect
import itertools
import weakref
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np

from tenonnx.errors import InvalidArgument
from tenonnx.provider import HOST, Device, Step
from tenonnx.records import record

if TYPE_CHECKING:
    import onnx_ir as ir

    from tenonnx.planning.lower import Lowering


class Writable(Protocol):
    """An output that a step can write into a buffer; ``Direct`` says what its attributes are."""

    @property
    def position(self) -> int: ...  # noqa: D102 - of Direct
    @property
    def dtype(self) -> np.dtype[Any] | None: ...  # noqa: D102
    @property
    def owned(self) -> frozenset[int]: ...  # noqa: D102


NDArray: TypeAlias = np.ndarray[Any, Any]


@record
class Direct:
    """An output that a step can write into a buffer.

    Attributes:
        value: The output.
        position: Where it stands among the outputs.
        dtype: What its elements are; ``None`` if the model does not say it.
        owned: Positions of the inputs that the step alone reads: the buffer may be their memory.
    """

    value: ir.Value
    position: int
    dtype: np.dtype[Any] | None
    owned: frozenset[int]


def direct_outputs(lowering: Lowering, targets: Sequence[Device] = ()) -> tuple[Direct, ...]:
    """Returns the outputs that a step of the main graph can write into a buffer.

    Args:
        lowering: The graph.
        targets: Where each output is to be; on the host if empty.
    """
    from tenonnx.planning.writing import writer  # for those who give buffers

    wanted = set(lowering.outputs)
    makers = {
        value: item
        for item in lowering.block.items
        if isinstance(item, Step) and not wanted.isdisjoint(item.outputs)
        if writer(item.call, multiple=item.multiple) is not None
        for value in item.outputs
    }
    places = zip(lowering.outputs, targets or [HOST] * len(lowering.outputs), strict=True)
    return tuple(
        Direct(value, position, _dtype_of(value), frozenset(_owned(lowering, makers[value], value)))
        for position, (value, target) in enumerate(places)
        if value in makers
        and makers[value].device_of_outputs.id == target.id
        and lowering.outputs.count(value) == 1
    )


def _dtype_of(value: ir.Value) -> np.dtype[Any] | None:
    return value.dtype.numpy() if value.dtype else None  # UNDEFINED is false


def _owned(lowering: Lowering, step: Step, output: ir.Value) -> Iterator[int]:
    """Yields the inputs that nothing reads but what makes an output: the step, or a part of it."""
    maker = next((part for part in step.parts if output in part.outputs), step)
    nodes = set(maker.nodes)
    for position, value in enumerate(lowering.block.graph.inputs):
        # What stands for a value in a kept plan knows no readers: it may have others.
        consumers = getattr(value, "consumers", None)
        if consumers is None or value.is_graph_output():
            continue
        if all(user in nodes for user in consumers()):
            yield position


def choose_buffers(
    direct: Sequence[Writable], inputs: Sequence[Any], buffers: Sequence[Any]
) -> list[Any]:
    """Returns the buffers that may be written while inputs are still read; ``None`` for others.

    Not each is held against each: a decoder has hundreds.
    """
    if not direct:
        return []
    arrays = [(i, given) for i, given in enumerate(inputs) if isinstance(given, np.ndarray)]
    taken = sorted((*_extent(given), i) for i, given in arrays)
    ends = list(itertools.accumulate((end for _, end, _ in taken), max))
    places = {id(given): i for i, given in arrays}
    apart = all(end <= start for end, (start, _, _) in zip(ends, taken[1:], strict=False))

    def is_free(buffer: Any, output: Writable) -> bool:
        if buffer.dtype != output.dtype:
            return False
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


_views: dict[int, tuple[weakref.ref[NDArray], tuple[int, int]]] = {}
"""The addresses of views. A view never moves, and asking takes a microsecond."""


def _extent(array: NDArray) -> tuple[int, int]:
    """Returns the addresses of an array's first byte and after its last."""
    number = id(array)
    if (known := _views.get(number)) is not None and known[0]() is array:
        return known[1]
    if array.flags.c_contiguous:
        start: int = array.__array_interface__["data"][0]
        found = start, start + array.nbytes
    else:
        found = np.lib.array_utils.byte_bounds(array)
    if not array.flags.owndata:
        _views[number] = weakref.ref(array, lambda _: _views.pop(number, None)), found
    return found


class Memory:
    """The addresses of some arrays.

    Args:
        arrays: They.
    """

    def __init__(self, arrays: Iterable[NDArray]) -> None:
        extents = sorted(map(_extent, arrays))
        self._starts = [start for start, _ in extents]
        self._ends = list(itertools.accumulate((end for _, end in extents), max))

    def meets(self, array: NDArray) -> bool:
        """Says whether an array may have bytes in common with one of them."""
        low, high = _extent(array)
        before = bisect.bisect_left(self._starts, high)
        return before > 0 and self._ends[before - 1] > low


def deliver(output: Any, buffer: Any, name: str | None) -> Any:
    """Returns the buffer with an output in it; the output itself if there is none on the host.

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
