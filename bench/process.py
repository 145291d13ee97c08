"""Processes that are measured: each tells facts, a line of JSON at a time."""

from __future__ import annotations

import contextlib
import json
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]

Facts = dict[str, Any]


class Failed(Exception):
    """The engine does not run the model; the message says why, in its words."""


class Child:
    """A process that waits for a line whenever it has told something.

    Args:
        command: Starts it.
        variables: Its environment.
        timeout: Seconds after which it is killed, unless ``stay`` is called before.
    """

    def __init__(
        self, command: Sequence[str], variables: Mapping[str, str], timeout: float
    ) -> None:
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed with the child
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            cwd=ROOT,
            env=variables,
        )
        self.pid = self._process.pid
        self._late = ""
        self._killer = threading.Timer(timeout, self._kill, (timeout,))
        self._killer.start()

    def hear(self) -> Facts:
        """Wait for what it tells next.

        Raises:
            Failed: It says so, it ended, or it took too long.
        """
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                told: Facts = json.loads(line)
                if "error" in told:
                    raise Failed(told["error"])
                return told
        self._errors.seek(0)
        raise Failed(self._late or (self._errors.read().splitlines() or ["the process ended"])[-1])

    def send(self, line: str = "") -> None:
        """Have it go on."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(f"{line}\n")
            self._process.stdin.flush()

    @property
    def private_mib(self) -> float:
        """MiB of memory that no file backs; 0 where the system does not tell."""
        with contextlib.suppress(OSError):
            text = Path(f"/proc/{self.pid}/status").read_text()
            return int(text.partition("RssAnon:")[2].split()[0]) / 1024
        return 0.0

    def stay(self) -> None:
        """Lift its time limit from now on."""
        self._killer.cancel()

    def close(self) -> None:
        """End it."""
        self._killer.cancel()
        self._process.kill()
        self._process.communicate()
        self._errors.close()

    def _kill(self, timeout: float) -> None:
        self._late = f"takes more than {timeout:g} s"
        self._process.kill()
