"""A process that is asked: a line of JSON for each thing to do, and one for the answer."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
from collections.abc import Callable
from typing import Any, TypeAlias

VARIABLES = {"OPENBLAS_NUM_THREADS": "1", "NUMBA_DISABLE_ERROR_MESSAGE_HIGHLIGHTING": "1"}
"""Of every process that compiles. It needs no threads of numpy's, and no colors in messages of
errors, which numba makes and drops whenever it looks for the definition that fits."""

CLOSE_SECONDS = 0.5
"""Seconds that it may take to end by itself."""

Process: TypeAlias = "subprocess.Popen[bytes]"


class Died(RuntimeError):
    """The process ended before it answered."""


class Child:
    """That process, which is started when it is first asked, and anew once it has ended.

    One thread asks and closes.

    Args:
        start: Starts it, with pipes to its standard input and from its standard output.
    """

    def __init__(self, start: Callable[[], Process]) -> None:
        self._start = start
        self._process: Process | None = None

    def ask(self, what: dict[str, Any]) -> dict[str, Any]:
        """Return its answer.

        Raises:
            Died: It ended before that.
            OSError: It cannot be started.
        """
        if self._process is None:
            self._process = self._start()
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        answer = b""
        try:
            process.stdin.write(json.dumps(what).encode() + b"\n")
            while not answer.endswith(b"\n"):
                more = process.stdout.read(1000)
                if not more:
                    raise Died(self._ended())
                answer += more
        except BrokenPipeError as error:
            raise Died(self._ended()) from error
        return dict(json.loads(answer))

    def _ended(self) -> str:
        """Close the process, which has ended or is about to; return how."""
        code = self.close()
        if code < 0:
            with contextlib.suppress(ValueError):
                return f"the compiler was killed by {signal.Signals(-code).name}"
        return f"the compiler ended with status {code}"

    def close(self) -> int:
        """Have the process end, if there is one; return its status."""
        process, self._process = self._process, None
        if process is None:
            return 0
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
        try:
            return process.wait(CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()
