"""Limits of runs: their sources, and the places that check them.

A run or a load with *limits* has them checked by whoever works for it, in the same thread: after
every step, between the tasks of a kernel, between pieces of long loops.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from types import CodeType
from typing import Any, Protocol

from tenonnx.errors import Fail


class Stopped(Fail):
    """A run or a load was stopped by one of its limits."""


class Limit(Protocol):
    """Says when to stop."""

    def check(self) -> None:
        """Raises ``Stopped`` if it is time."""


_own = threading.local()
_followers: list[Callable[[], object]] = []


def limits() -> tuple[Limit, ...]:
    """Returns the limits of what this thread does."""
    found: tuple[Limit, ...] = getattr(_own, "limits", ())
    return found


def check() -> None:
    """Raises what a limit of this thread stops it with.

    Array kernels call it every few hundredths of a second at least.
    """
    for limit in limits():
        limit.check()


def pieces(length: int, work: int, longest: int) -> Iterator[slice]:
    """Yields slices that an axis of some length is done in, having looked whether to stop.

    Args:
        length: Of the axis.
        work: The work along the whole axis.
        longest: The most work of a piece, unless a single element of the axis has more.
    """
    step = max(1, length * longest // max(work, longest))
    for start in range(0, length, step):
        check()
        yield slice(start, start + step)


MOVED = 1 << 20
"""Elements that are copied at once: a hundredth of a second, or three into memory that is new."""

TILE = 128
"""Elements of a row that are copied at once where the source has its rows elsewhere."""


def fill(target: Any, source: Any) -> None:
    """Copies an array into another of its shape, in pieces between which it can be stopped."""
    axis = next((axis for axis, length in enumerate(target.shape) if length > 1), None)
    if target.size > MOVED and axis is not None:
        for some in pieces(target.shape[axis], target.size, MOVED):
            part = (*(slice(None),) * axis, some)
            fill(target[part], source[part])
    elif axis is None or abs(source.strides[-1]) <= source.itemsize:
        target[...] = source
    else:
        for start in range(0, target.shape[-1], TILE):
            target[..., start : start + TILE] = source[..., start : start + TILE]


def copied(source: Any) -> Any:
    """Returns a copy of a numpy array, in C's order."""
    if source.size <= MOVED:
        return source.copy()
    import numpy as np  # a caller has arrays of it, and so has imported it

    target = np.empty(source.shape, source.dtype)
    fill(target, source)
    return target


def enter(stage: str) -> None:
    """Says what this thread does from now on, after checking whether it still may.

    Args:
        stage: What it is doing: ``"reading the model"``.
    """
    check()
    _own.stage = stage


def stage() -> str:
    """Returns what this thread is doing."""
    return getattr(_own, "stage", "working")


class limited:  # noqa: N801 - it is called like a function, and as a generator takes twice as long
    """Puts what this thread does within a ``with`` under limits, beside those that there are."""

    __slots__ = ("_before", "_more")

    def __init__(self, *more: Limit) -> None:
        self._more = more

    def __enter__(self) -> None:
        self._before = limits()
        _own.limits = (*self._before, *self._more)
        try:
            for follower in _followers:
                follower()
        except BaseException:
            _own.limits = self._before
            raise

    def __exit__(self, *_: object) -> None:
        _own.limits = self._before


def follow(follower: Callable[[], object]) -> None:
    """Has a function called whenever a thread is put under limits."""
    _followers.append(follower)


def lines(error: BaseException) -> Iterator[tuple[CodeType, int]]:
    """Yields code and line of the frames that an exception went through, outermost first."""
    traceback = error.__traceback__
    while traceback is not None:
        yield traceback.tb_frame.f_code, traceback.tb_lineno
        traceback = traceback.tb_next


def raised_by_handler(error: BaseException) -> bool:
    """Says whether a signal's handler raised an exception: it is no fault of what it came into."""
    if threading.current_thread() is not threading.main_thread():
        return False
    import signal  # for errors alone

    handlers = {_code_of(signal.getsignal(number)) for number in signal.valid_signals()} - {None}
    return any(code in handlers for code, _ in lines(error))


def _code_of(handler: Any) -> CodeType | None:
    """Returns the code that a call of a handler runs, if it is Python's."""
    while (inner := getattr(handler, "func", None)) is not None:  # functools.partial
        handler = inner
    if callable(handler) and not hasattr(handler, "__code__") and not hasattr(handler, "__func__"):
        handler = type(handler).__call__
    return getattr(getattr(handler, "__func__", handler), "__code__", None)
