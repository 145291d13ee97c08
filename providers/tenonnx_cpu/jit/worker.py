"""What the process does that compiles kernels; see ``compiler_process``."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import signal
import sys
import time
from pathlib import Path

from tenonnx_cpu.jit.code.cache import cache_folder, image_path
from tenonnx_cpu.jit.compiler_process import DONE, UNKEPT
from tenonnx_cpu.jit.runtime import source_of

NICE = 5
"""How much it yields: a quarter of a core that it competes for is its own, in its turns."""

PR_SET_PDEATHSIG = 1

DRAFT_SECONDS = 3600
"""After which a file that is still being written is one that nobody goes on with."""


def main() -> None:
    """Compiles what its standard input names, until that ends or whoever started it does."""
    _end_with_parent()
    with contextlib.suppress(OSError):
        os.nice(NICE)
    answers = os.dup(1)
    os.dup2(2, 1)
    _sweep_drafts()
    for line in sys.stdin:
        os.write(answers, f"{_compile(*line.split())}\n".encode())


def _end_with_parent() -> None:
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != int(sys.argv[1]):  # it ended before that
        sys.exit()


def _compile(module: str, name: str) -> str:
    """Returns ``DONE``, or why there is no image, in one line."""
    try:
        kernels = importlib.import_module(f"tenonnx_cpu.jit.{module}").__dict__
        kernels[name].compile(name)
        path = image_path(source_of(module), name)
        return DONE if path.exists() else UNKEPT
    except Exception as error:  # LLVM and numba raise anything
        return " ".join(f"{type(error).__name__}: {error}".split())[:500]


def _sweep_drafts() -> None:
    """Deletes what processes that were killed left half written."""
    with contextlib.suppress(OSError):
        for entry in os.scandir(cache_folder()):
            _, _, end = entry.name.rpartition(".")
            is_draft = len(end) == 16 and set(end) <= set("0123456789abcdef")
            if is_draft and time.time() - entry.stat().st_mtime > DRAFT_SECONDS:
                Path(entry.path).unlink()
