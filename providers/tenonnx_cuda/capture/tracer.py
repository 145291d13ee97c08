"""The trace of a call on a device, by which it can be repeated.

Only what goes through ``allocate`` and ``start`` can be traced. An array that came about otherwise
is known by its address, which belongs to nothing traced; what writes to an array otherwise has to
say so by ``cannot_capture``, and what lies on the device for several runs, by ``hold``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from tenonnx.operators import Array

# Bytes that a call may allocate: its trace holds all of them, also those that it is done with.
# One that takes more has the device do more than takes the host's time.
MAX_TRACED_BYTES: Final = 256 << 20

# Starts something on the active stream; takes addresses, and numbers that grow.
Start: TypeAlias = Callable[..., None]


class DynamicNumber(NamedTuple):
    """A number that is another one where a call's caches are longer.

    Attributes:
        value: As long as they are.
        times: What a step more of them adds to it.
    """

    value: np.generic
    times: int = 1


Argument: TypeAlias = "Array | DynamicNumber | None"


@dataclass
class Trace:
    """The trace of a call.

    Attributes:
        buffers: What it was given to write to.
        by_stream: A graph of the stream's work is captured, which has all but what is held.
        made: What it allocates.
        held: What else it has on the device.
        claims: Caches that it went on from in their rooms; along which axes, by how many steps.
        starts: What it starts, and on which arrays.
        nbytes: Of what it allocates.
        complete: Whether that is all.
    """

    buffers: Sequence[Array | None] = ()
    by_stream: bool = False
    made: list[Array] = field(default_factory=list)
    held: list[Array] = field(default_factory=list)
    claims: list[tuple[Array, int, int]] = field(default_factory=list)
    starts: list[tuple[Start, Sequence[Argument]]] = field(default_factory=list)
    nbytes: int = 0
    complete: bool = True

    def give_up(self) -> None:
        """Drop the trace, because it is not complete."""
        self.complete = False
        for traced in (self.made, self.held, self.claims, self.starts):
            traced.clear()


_thread = threading.local()


def current_trace() -> Trace | None:
    """Return what is traced of the call that this thread is in, as long as that is all."""
    traced: Trace | None = getattr(_thread, "trace", None)
    return None if traced is None or traced.by_stream or not traced.complete else traced


@contextmanager
def tracing(buffers: Sequence[Array | None] = (), *, by_stream: bool = False) -> Iterator[Trace]:
    """Yield what is traced of this thread's work meanwhile, which may write to some buffers."""
    outer, traced = getattr(_thread, "trace", None), Trace(buffers, by_stream)
    _thread.trace = traced
    try:
        yield traced
    finally:
        _thread.trace = outer


def allocate(xp: Any, shape: Any, dtype: Any) -> Array:
    """Return an array whose elements are still to be written."""
    if (traced := current_trace()) is None:
        return xp.empty(shape, dtype)
    try:
        made = xp.empty(shape, dtype)
    except MemoryError:
        traced.give_up()  # there is more room where nothing is held for the notes
        return xp.empty(shape, dtype)
    traced.made.append(made)
    traced.nbytes += made.nbytes
    if traced.nbytes > MAX_TRACED_BYTES:
        traced.give_up()
    return made


def start(function: Start, *arguments: Argument) -> None:
    """Call a function with the addresses of arrays, 0 for none, and with numbers.

    It holds no array, and does the same whenever it is called, but for what it is given.
    """
    function(*(int(a.value) if isinstance(a, DynamicNumber) else address(a) for a in arguments))
    if (traced := current_trace()) is not None:
        traced.starts.append((function, arguments))


def claim(cache: Array, axis: int, steps: int) -> None:
    """Note that what is behind a cache in its room was claimed."""
    if (traced := current_trace()) is not None:
        traced.claims.append((cache, axis, steps))


def is_capturing() -> bool:
    """Return whether what this thread starts is going to be replayed by a graph, as it is."""
    traced: Trace | None = getattr(_thread, "trace", None)
    return traced is not None and traced.by_stream


def hold(*arrays: Array) -> None:
    """Note what is there for several runs: whoever repeats this one needs it."""
    traced: Trace | None = getattr(_thread, "trace", None)
    if traced is not None and traced.complete:
        traced.held += arrays


def cannot_capture() -> None:
    """Note that a call does what is not traced."""
    if (traced := current_trace()) is not None:
        traced.give_up()


def address(array: Any) -> int:
    """Return where an array of the device begins; 0 for none."""
    return 0 if array is None else int(array.data.ptr)
