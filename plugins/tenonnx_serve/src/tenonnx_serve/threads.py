"""The threads that run models, and the limits that stop a run."""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable
from typing import Any

from tenonnx.process.interruption import Stopped


class Stop:
    """A limit of a run: a time, or a reason to stop earlier.

    Args:
        seconds: The time limit, from now.
    """

    __slots__ = ("end", "reason", "seconds")

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.end = time.perf_counter() + seconds
        self.reason = ""

    def check(self) -> None:
        """Raise ``Stopped`` if the run must stop."""
        if self.reason:
            raise Stopped(self.reason)
        if time.perf_counter() > self.end:
            raise Stopped(f"the request took longer than {self.seconds:g} s")


# A function to call, and the loop and the future that get its result.
Task = tuple[Callable[[], Any], asyncio.AbstractEventLoop, "asyncio.Future[Any]"]


class Threads:
    """A few threads that take work from the event loop, oldest first.

    asyncio's own executor takes three times as long to hand work over and back.

    Args:
        count: How many.
        name: The prefix of their names.
    """

    def __init__(self, count: int, name: str) -> None:
        self.count = count
        self.busy = 0
        self._queue: queue.SimpleQueue[Task | None] = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=self._work, name=f"{name}-{n}", daemon=True)
            for n in range(count)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, work: Callable[[], Any]) -> asyncio.Future[Any]:
        """Call a function in a thread; return a future of the running loop.

        A function whose future is cancelled before a thread takes it is not called.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        self._queue.put((work, loop, future))
        return future

    def _work(self) -> None:
        while (task := self._queue.get()) is not None:
            self.busy += 1
            _do(*task)
            self.busy -= 1
            del task  # frees its result

    def end(self) -> None:
        """Have the threads end after the work that waits."""
        for _ in self._threads:
            self._queue.put(None)

    def stop(self) -> None:
        """End the threads after the work that waits."""
        self.end()
        for thread in self._threads:
            thread.join()


def _do(
    work: Callable[[], Any], loop: asyncio.AbstractEventLoop, future: asyncio.Future[Any]
) -> None:
    """Do a task, unless its future was cancelled.

    An error's traceback keeps this frame. It must not keep the future, which keeps the error: that
    cycle would keep the request's data until the garbage collector runs.
    """
    result, error = None, None
    try:
        if not future.cancelled():
            result = work()
    except BaseException as raised:  # any error goes to the caller
        error = raised
    try:
        loop.call_soon_threadsafe(_settle, future, result, error)
    except RuntimeError:  # the loop has ended, and nobody waits
        pass
    finally:
        del work, future, result, error


def _settle(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)
