"""Compiles CUDA kernels for the host, so that their arithmetic is seen without a device."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

HEADER = Path(__file__).with_suffix(".hpp")
RUNTIME = Path(__file__).with_suffix(".cpp")
COMPILER = shutil.which("g++") or shutil.which("c++")
FLAGS = ("-std=c++17", "-shared", "-fPIC", f"-I{HEADER.parent}")
CACHE = Path(__file__).parents[2] / ".pytest_cache" / "hosted"
RUNNING = threading.Lock()
"""There is one set of fibers; and a device runs the kernels of a stream in turn, too."""


class NoCompilerError(RuntimeError):
    """There is no C++ compiler, and so no kernels."""


@functools.cache
def compile_kernel(source: str, name: str, options: tuple[str, ...]) -> Any:
    """Return a kernel that takes a grid, a block and arguments, as cupy's do."""
    text = (
        f'#include "{HEADER.name}"\n{source}\nextern "C" void launch(const unsigned* shape, void** '
        f"given) {{ hosted::launch({name}, shape, given); }}\n"
    )
    path = library(text, "-O0", "-w", *options, str(runtime()))
    return Launch(ctypes.CDLL(str(path)))


@functools.cache
def runtime() -> Path:
    """Return the library for kernels on the host."""
    return library(RUNTIME.read_text(), "-O2")


def library(text: str, *options: str) -> Path:
    """Return a compiled library of the cache folder.

    Args:
        text: Its source, which includes the header.
        options: The compiler's, and what it is linked to.
    """
    if COMPILER is None:
        raise NoCompilerError("no C++ compiler")
    parts = (text, HEADER.read_text(), *FLAGS, *options)
    path = CACHE / f"{hashlib.sha256(repr(parts).encode()).hexdigest()[:32]}.so"
    if not path.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        _build(text, options, path)
    return path


class Launch:
    """A kernel that takes a grid, a block and arguments."""

    def __init__(self, library: Any) -> None:
        self._library = library

    def __call__(self, grid: Any, block: Any, arguments: Any) -> None:
        sizes = (*grid, *(1,) * (3 - len(grid)), *block, *(1,) * (3 - len(block)))
        cells = [_cell(argument) for argument in arguments]
        pointers = (ctypes.c_void_p * len(cells))(*(c.ctypes.data for c in cells))
        with RUNNING:
            self._library.launch((ctypes.c_uint * 6)(*sizes), pointers)

    def prepared(self, grid: Any, block: Any, arguments: Any) -> Callable[..., None]:
        places = [i for i, each in enumerate(arguments) if not isinstance(each, np.generic)]
        given = [each if isinstance(each, np.generic) else None for each in arguments]

        def start(*addresses: int) -> None:
            for place, address in zip(places, addresses, strict=True):
                given[place] = np.uintp(address)
            self(grid, block, given)

        return start


def _build(text: str, options: tuple[str, ...], path: Path) -> None:
    assert COMPILER is not None
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        code, made = Path(folder) / "kernel.cpp", Path(folder) / "kernel.so"
        code.write_text(text)
        done = subprocess.run(
            [COMPILER, *FLAGS, code, *options, "-o", made], capture_output=True, text=True
        )
        if done.returncode:
            raise RuntimeError(done.stderr)
        made.rename(path)


def _cell(argument: Any) -> np.ndarray[Any, Any]:
    """Return memory that holds an argument: an array's address, or a number."""
    held = getattr(argument, "held", argument)
    if isinstance(held, np.ndarray):
        return np.array(held.ctypes.data, np.uintp)
    assert isinstance(held, np.generic), f"cupy would take {argument!r} for 8 bytes"
    return np.asarray(held)
