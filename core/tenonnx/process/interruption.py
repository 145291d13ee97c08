"""Limits of runs: their sources, and the places that check them.

A run or a load with *limits* has them checked by whoever works for it, in the same thread: after
every step, between the tasks of a kernel, in long loops of Python's. An operation of numpy is not
interrupted.
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
    """A limit of what a thread does: when to stop, and with which error."""

    def check(self) -> None:
        """Raise ``Stopped`` if it is time."""


_own = threading.local()
_followers: list[Callable[[], object]] = []


def limits() -> tuple[Limit, ...]:
    """Return the limits of what this thread does."""
    found: tuple[Limit, ...] = getattr(_own, "limits", ())
    return found


def check() -> None:
    """Raise what a limit of this thread stops it with.

    Kernels with loops of many operations call it within them.
    """
    for limit in limits():
        limit.check()


def enter(stage: str) -> None:
    """Enter a stage of this thread's work, after checking whether it may still run.

    Args:
        stage: What it is doing: ``"reading the model"``.
    """
    check()
    _own.stage = stage


def stage() -> str:
    """Return what this thread is doing."""
    return getattr(_own, "stage", "working")


class limited:  # noqa: N801 - it is called like a function, and as a generator takes twice as long
    """A context in which this thread has further limits, beside those that there are."""

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
    """Have a function called whenever a thread is put under limits."""
    _followers.append(follower)


# After which an interrupt that fell into a finalizer comes again, when that has returned.
AGAIN_SECONDS = 0.05


def finish(work: Callable[..., object], *arguments: object) -> None:
    """Do a finalizer's work, anew if an interrupt comes: Python would print that and lose it.

    The program is interrupted afterwards, in code of its own.

    Args:
        work: Such as writing a file; doing it twice does no harm.
        arguments: Its arguments.
    """
    try:
        work(*arguments)
    except KeyboardInterrupt:
        import signal

        threading.Timer(AGAIN_SECONDS, signal.raise_signal, [signal.SIGINT]).start()
        work(*arguments)


def lines(error: BaseException) -> Iterator[tuple[CodeType, int]]:
    """Yield code and line of the frames that an exception went through, outermost first."""
    traceback = error.__traceback__
    while traceback is not None:
        yield traceback.tb_frame.f_code, traceback.tb_lineno
        traceback = traceback.tb_next


def raised_by_handler(error: BaseException) -> bool:
    """Return whether a signal's handler raised an exception: no fault of the code it came into."""
    if threading.current_thread() is not threading.main_thread():
        return False
    import signal

    handlers = {_code_of(signal.getsignal(number)) for number in signal.valid_signals()} - {None}
    return any(code in handlers for code, _ in lines(error))


def _code_of(handler: Any) -> CodeType | None:
    """Return the code that a call of a handler runs, if it is Python's."""
    while (inner := getattr(handler, "func", None)) is not None:  # functools.partial
        handler = inner
    if callable(handler) and not hasattr(handler, "__code__") and not hasattr(handler, "__func__"):
        handler = type(handler).__call__
    return getattr(getattr(handler, "__func__", handler), "__code__", None)
