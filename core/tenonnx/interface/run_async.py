"""Runs in other threads: futures that callers, callbacks and coroutines wait for."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from tenonnx.interface.run_options import RunOptions
from tenonnx.process.cores import available_cores


class RunFuture(Future[list[Any]]):
    """A run's outputs to be; ``await`` it, or call ``result()``.

    Args:
        options: The run's; cancelling the future sets their ``terminate`` if they are its own.
        shared: Whether other runs have them too.
    """

    def __init__(self, options: RunOptions, *, shared: bool) -> None:
        super().__init__()
        self._options = options
        self._shared = shared

    def cancel(self) -> bool:
        """Stop the run, whether it has begun or not; return whether it can still be stopped."""
        if super().cancel():
            return True
        if self._shared or self.done():
            return False
        self._options.terminate = True
        return True

    def __await__(self) -> Generator[Any, None, list[Any]]:
        import asyncio

        return asyncio.wrap_future(self).__await__()


@functools.cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(available_cores(), thread_name_prefix="tenonnx-run")


if hasattr(os, "register_at_fork"):
    # A child has none of its parent's threads.
    os.register_at_fork(after_in_child=_pool.cache_clear)


def start(
    run: Callable[..., list[Any]],
    names: Sequence[str] | None,
    feeds: Mapping[str, Any],
    callback: Callable[[Any, Any, str], Any] | None,
    user_data: Any,
    options: RunOptions | None,
) -> RunFuture:
    """Start a run in another thread; see ``InferenceSession.run_async``."""
    # Only a run that somebody can stop pays for being watched: the caller's options, or a future
    # that nobody's callback stands for.
    watched = options or (None if callback else RunOptions())
    future = RunFuture(watched or RunOptions(), shared=options is not None or callback is not None)

    def work() -> None:
        if not future.set_running_or_notify_cancel():
            return
        try:
            outputs = run(names, feeds, watched)
        except Exception as error:
            if callback is not None:
                callback([], user_data, str(error))
            future.set_exception(error)
        else:
            if callback is not None:
                callback(outputs, user_data, "")
            future.set_result(outputs)

    _pool().submit(work)
    return future
