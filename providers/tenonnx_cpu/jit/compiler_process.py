"""The process that compiles kernels beside this one, so that no thread of this one does.

It is this program's Python and sees its modules, but runs nothing of it. It takes kernels from its
standard input (``code.worker``) and leaves code objects in the cache. It ends with whoever started
it, and can be killed at any time: code objects are written at once or not at all.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tenonnx_cpu.jit.code import code_object
from tenonnx_cpu.jit.code.child import VARIABLES, Child, Process

CODE = """
import sys
sys.path[:] = sys.argv[2:]
from tenonnx_cpu.jit.code import worker
worker.beside(int(sys.argv[1]))
"""


def interpreter() -> list[str] | None:
    """Return how to start another Python; ``None`` where there is none, or it is of no use.

    A program that embeds or is frozen with Python is not one itself.
    """
    name = Path(sys.executable or "").name
    if not code_object.SUPPORTED or getattr(sys, "frozen", False) or not name.startswith("python"):
        return None
    flags = sys.flags
    isolated = (("-I", flags.isolated), ("-E", flags.ignore_environment), ("-S", flags.no_site))
    return [sys.executable, *(option for option, is_set in isolated if is_set)]


class CompilerProcess(Child):
    """That process, which is started when it is first asked."""

    def __init__(self) -> None:
        super().__init__(_start)

    def prepare(self) -> None:
        """Start it, unless it is there, and wait until it can compile.

        Raises:
            Died: The process ended before that.
            OSError: It cannot be started.
        """
        self.ask({"ready": True})

    def compile(self, kernel: str) -> str:
        """Have a kernel compiled, by its name; return why it has no code object, or ``""``.

        Raises:
            Died: The process ended before it answered.
            OSError: It cannot be started.
        """
        return " ".join(str(self.ask({"code object": kernel})["error"]).split())


def _start() -> Process:
    command = interpreter()
    if command is None:
        raise OSError("no Python interpreter was found that could compile")
    paths = [path for path in sys.path if isinstance(path, str)]
    # The compiler needs no module of another name.
    variables = VARIABLES | {"TENONNX_AS_ONNXRUNTIME": "0"}
    return subprocess.Popen(
        [*command, "-c", CODE, str(os.getpid()), *paths],
        bufsize=0,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=os.environ | variables,
        process_group=0,  # Ctrl-C is for the program
    )
