"""The process that compiles kernels beside this one, so that no thread of this one does.

It is this program's Python and sees its modules, but runs nothing of it. It takes kernels from its
standard input (``code.worker``) and leaves code objects in the cache. It ends with whoever started
it, and can be killed at any time: code objects are written at once or not at all.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from tenonnx_cpu.jit.code import code_object
from tenonnx_cpu.jit.code.ahead import VARIABLES

CODE = """
import sys
sys.path[:] = sys.argv[2:]
from tenonnx_cpu.jit.code import worker
worker.beside(int(sys.argv[1]))
"""

CLOSE_SECONDS = 0.5
"""How long it may take to end by itself."""


class Died(RuntimeError):
    """The process ended before it answered."""


def interpreter() -> list[str] | None:
    """Returns how to start another Python; ``None`` where there is none, or it is of no use.

    A program that embeds or is frozen with Python is not one itself.
    """
    name = Path(sys.executable or "").name
    if not code_object.SUPPORTED or getattr(sys, "frozen", False) or not name.startswith("python"):
        return None
    flags = sys.flags
    isolated = (("-I", flags.isolated), ("-E", flags.ignore_environment), ("-S", flags.no_site))
    return [sys.executable, *(option for option, is_set in isolated if is_set)]


class CompilerProcess:
    """That process, which is started when it is first asked.

    One thread asks and closes; any may kill it. Its pipes have no buffers that a fork might copy.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def prepare(self) -> None:
        """Starts it, unless it is there, and waits until it can compile.

        Raises:
            Died: The process ended before that.
            OSError: It cannot be started.
        """
        self._ask({"ready": True})

    def ask(self, kernel: str) -> str:
        """Has a kernel compiled, by its name; returns why it has no code object, or ``""``.

        Raises:
            Died: The process ended before it answered.
            OSError: It cannot be started.
        """
        return " ".join(str(self._ask({"code object": kernel})["error"]).split())

    def _ask(self, what: dict[str, object]) -> dict[str, object]:
        process = self._process or self._start()
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

    def _start(self) -> subprocess.Popen[bytes]:
        command = interpreter()
        if command is None:
            raise OSError("there is no Python to start")
        paths = [path for path in sys.path if isinstance(path, str)]
        # The compiler needs no module of another name.
        variables = VARIABLES | {"TENONNX_AS_ONNXRUNTIME": "0"}
        self._process = subprocess.Popen(
            [*command, "-c", CODE, str(os.getpid()), *paths],
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=os.environ | variables,
            process_group=0,  # Ctrl-C is for the program
        )
        return self._process

    def _ended(self) -> str:
        """Closes the process, which has ended or is about to; says how."""
        code = self.close()
        if code < 0:
            with contextlib.suppress(ValueError):
                return f"the compiler was killed by {signal.Signals(-code).name}"
        return f"the compiler ended with status {code}"

    def close(self) -> int:
        """Has the process end, if there is one; returns its status."""
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

    def signal(self, number: int) -> None:
        """Sends the process a signal, if there is one: killed, it lets ``ask`` raise ``Died``."""
        if (process := self._process) is not None:
            process.send_signal(number)

    def forget(self) -> None:
        """Leaves the process to the parent, in a child that was forked."""
        process, self._process = self._process, None
        if process is not None:
            process.returncode = 0  # it is not this one's to wait for
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()
