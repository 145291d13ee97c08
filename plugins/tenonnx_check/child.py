"""The parent's end of a child process that runs parts of a model."""

from __future__ import annotations

import json
import pickle
import selectors
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tenonnx.cli.opening import Request
from tenonnx.cli.state import State
from tenonnx.errors import Fail
from tenonnx_bench.memory import options_of
from tenonnx_check.outcome import Kind, Outcome, crashed
from tenonnx_check.worker import READY, VALUES

# The end of a crashed process's output that is repeated.
MAX_SAID_CHARACTERS = 2000


class Child:
    """A process that is started again whenever it has crashed or hung.

    Args:
        state: The plug-ins to use.
        request: How models are opened.
        tolerances: The options ``--rtol`` and ``--atol``, if any.
        seconds: The longest time for one answer.
    """

    def __init__(
        self, state: State, request: Request, tolerances: Sequence[str], seconds: float
    ) -> None:
        plugins = [part for file in state.files for part in ("--plugin", file)]
        options = [*options_of(request), *tolerances]
        self._command = [sys.executable, "-m", "tenonnx", *plugins, "check", "--child", *options]
        self._seconds = seconds
        self._process: subprocess.Popen[str] | None = None
        self._said = tempfile.TemporaryFile("w+")  # noqa: SIM115 - as long as the child
        self.asked = 0

    def ask(self, model: str, folder: str, **request: Any) -> Outcome:
        """Return how a part of a model ended.

        Args:
            model: The model's path.
            folder: Where its values are.
            request: The rest of the request; see ``worker.Worker.answer``.
        """
        self.asked += 1
        process = self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps({"model": model, "folder": folder, **request}) + "\n")
            process.stdin.flush()
            with selectors.DefaultSelector() as selector:
                selector.register(process.stdout, selectors.EVENT_READ)
                if not selector.select(self._seconds):
                    self.close()
                    return Outcome(Kind.HANGS, "", f"no answer within {self._seconds:g} s")
            line = process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            return self._ended(process)
        told = json.loads(line)
        return Outcome(Kind(told["kind"]), told["place"], told["text"], tuple(told["outputs"]))

    def _ended(self, process: subprocess.Popen[str]) -> Outcome:
        self._process = None
        return crashed(process.wait(), self._output())

    def _output(self) -> str:
        self._said.seek(0)
        return self._said.read()[-MAX_SAID_CHARACTERS:].strip()

    def _started(self) -> subprocess.Popen[str]:
        if self._process is not None:
            return self._process
        self._said.seek(0)
        self._said.truncate()
        process = subprocess.Popen(
            [*self._command, "--", "-"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            text=True,
        )
        assert process.stdout is not None
        if process.stdout.readline().strip() != READY:
            process.wait()
            raise Fail(f"a process that runs parts of the model did not start:\n{self._output()}")
        self._process = process
        return process

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


def folder_of(feeds: Mapping[str, Any], where: str) -> str:
    """Return a new folder with a model's inputs, to which a child adds all other values."""
    folder = tempfile.mkdtemp(dir=where)
    Path(folder, VALUES).write_bytes(pickle.dumps(dict(feeds), protocol=5))
    return folder
