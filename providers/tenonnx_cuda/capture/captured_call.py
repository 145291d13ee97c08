"""A captured call, with places in its inputs and its own memory instead of addresses."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from tenonnx.operators import Array
from tenonnx_cuda.capture.tracer import Start, address
from tenonnx_cuda.kv_cache import Room
from tenonnx_cuda.platform import View

# The number of an address, and an offset in bytes.
Place: TypeAlias = tuple[int, int]


@dataclass(frozen=True)
class Result:
    """A result of a call.

    Attributes:
        source: In which source it is.
        view: How it lies there; the source itself if ``None``.
        axis: The one along which it gets longer; ``None`` for one that does not.
    """

    source: int
    view: View | None
    axis: int | None = None

    def lengthened(self, sources: Sequence[Array], more: int, part: Callable[..., Array]) -> Array:
        """Return it, by so many steps longer."""
        source, view, axis = sources[self.source], self.view, self.axis
        if view is None:
            return source
        if axis is not None:
            shape = (*view.shape[:axis], view.shape[axis] + more, *view.shape[axis + 1 :])
            view = View(view.offset, view.dtype, shape, view.strides)
        return part(source, view)


@dataclass(frozen=True)
class CapturedCall:
    """The trace of a call, to be replayed.

    Sources are its inputs that are on the device, then what it allocates, then what it held.

    Attributes:
        given: Which inputs are on the device.
        made: Shape and element type of each allocation: what results are in, and then one for all
            that the call is done with.
        held: What else was on the device.
        times: Of what caches are longer by, what is added to numbers.
        starts: What was started, and where its arguments are: from the address of an input or an
            allocation, from 0, or from one of those numbers.
        results: What was returned; ``None`` for an absent one.
        claims: Caches among the inputs, their axes, and how many steps were claimed behind them.
        length: Of the caches; 0 for none.
        apart: Pairs of inputs with memory in common, and bytes from one to the other: which of
            them an address meant is known only if they lie so again.
        writes: Whether some of the inputs were buffers: then others may not have memory in common.
        multiple: Whether the call returned a tuple.
    """

    given: tuple[int, ...]
    made: tuple[tuple[tuple[int, ...], np.dtype[Any]], ...]
    held: tuple[Array, ...]
    times: tuple[int, ...]
    starts: tuple[tuple[Start, tuple[Place, ...]], ...]
    results: tuple[Result | None, ...]
    claims: tuple[tuple[int, int, int], ...]
    length: int
    apart: tuple[tuple[int, int, int], ...]
    writes: bool
    multiple: bool

    def fits(self, inputs: Sequence[Any], rooms: Mapping[int, Room]) -> bool:
        """Return whether inputs of these shapes share memory as the traced ones did.

        If so, memory behind caches in rooms is claimed.
        """
        if self.writes:
            if tuple(shared(inputs)) != self.apart:
                return False
        elif any(address(inputs[j]) - address(inputs[i]) != n for i, j, n in self.apart):
            return False
        return all(
            i in rooms and rooms[i].claim(inputs[i].shape[axis], steps)
            for i, axis, steps in self.claims
        )

    def replay(
        self,
        inputs: Sequence[Any],
        more: int,
        empty: Callable[..., Array],
        part: Callable[..., Array],
    ) -> Any:
        """Do it, and return what the call did.

        Args:
            inputs: The call's.
            more: By how many steps its caches are longer.
            empty: Allocates an array.
            part: Returns an array that lies in another one.
        """
        sources = [inputs[i] for i in self.given]
        sources += [empty(shape, dtype) for shape, dtype in self.made]
        at = [source.data.ptr for source in sources]
        at.append(0)
        at += [more * times for times in self.times]
        for function, places in self.starts:
            function(*[at[source] + rest for source, rest in places])
        sources += self.held
        found = [None if r is None else r.lengthened(sources, more, part) for r in self.results]
        return tuple(found) if self.multiple else found[0]


def shared(inputs: Sequence[Any]) -> Iterator[tuple[int, int, int]]:
    """Yield pairs of inputs that have memory in common, and the bytes from one to the other."""
    there = sorted((*at, i) for i, x in enumerate(inputs) if (at := extent(x)) is not None)
    pairs = []
    for n, (_, end, i) in enumerate(there):
        for begin, _, j in there[n + 1 :]:
            if begin >= end:
                break
            pairs.append((min(i, j), max(i, j)))
    for i, j in sorted(pairs):
        yield i, j, address(inputs[j]) - address(inputs[i])


def extent(array: Any) -> tuple[int, int] | None:
    """Return the addresses that an array's elements are between; ``None`` if there are none."""
    if array is None or isinstance(array, np.ndarray) or not array.size:
        return None
    first = address(array)
    if array.flags.c_contiguous:
        return first, first + array.nbytes
    steps = [(n - 1) * s for n, s in zip(array.shape, array.strides, strict=True)]
    lowest, highest = sum(s for s in steps if s < 0), sum(s for s in steps if s > 0)
    return first + lowest, first + highest + array.itemsize
