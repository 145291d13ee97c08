"""Weights on their way to a device: what reads them is started after they are there."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any

from tenonnx.provider import Step
from tenonnx_cuda.capture.replay import Replayed
from tenonnx_cuda.platform import Event, Stream


class Upload:
    """An allocation that is being filled."""

    def __init__(self) -> None:
        self._started = threading.Event()
        self._event: Event | None = None
        self._error: BaseException | None = None

    def start(self, event: Event) -> None:
        """Note that all copies to it are underway, and after which event they are done."""
        self._event = event
        self._started.set()

    def fail(self, error: BaseException) -> None:
        """Note that they will not be, unless they are already."""
        if not self._started.is_set():
            self._error = error
            self._started.set()

    def before(self, stream: Stream) -> None:
        """Have a stream's further work start after the copies.

        The host waits until they are underway, and no longer.

        Raises:
            OSError: Or whatever else ended the upload.
        """
        stream.wait_event(self._underway())

    def wait(self) -> None:
        """Wait until it is there.

        Raises:
            OSError: As ``before``.
        """
        self._underway().synchronize()

    def _underway(self) -> Event:
        self._started.wait()
        if self._error is not None:
            raise self._error
        assert self._event is not None, "it has started"
        return self._event


def after(uploads: Sequence[Upload], step: Step, stream: Stream) -> Step:
    """Return a step whose first runs start after the weights that it reads are there."""
    if not uploads:
        return step

    return step.replaced(call=_wrapped(uploads, stream, step.call))


def _wrapped(uploads: Sequence[Upload], stream: Stream, call: Any) -> Any:
    if isinstance(call, Replayed):
        return call.around(functools.partial(_wrapped, uploads, stream))
    return waiting(uploads, call, stream)


def waiting(
    uploads: Sequence[Upload], call: Callable[..., Any], stream: Stream
) -> Callable[..., Any]:
    """Return a call before whose first work a stream waits for uploads."""
    run = functools.partial(_after, list(uploads), stream, call)
    return functools.update_wrapper(run, call, updated=())


def _after(
    awaited: list[Upload],
    stream: Stream,
    call: Callable[..., Any],
    *inputs: Any,
    **buffers: Any,
) -> Any:
    # Another thread's run may be here too: each waits for all, before there are none.
    for upload in tuple(awaited):
        upload.before(stream)
    awaited.clear()
    return call(*inputs, **buffers)
