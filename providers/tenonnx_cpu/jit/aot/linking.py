"""The linker: objects become a shared library.

It is zig's, whose distribution ``ziglang`` brings the symbols of any version of the C library and
of every architecture; for this machine alone, a C compiler that is installed does as well.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

from tenonnx.weights.trusted import make_folder
from tenonnx_cpu.jit.code.cpu import architecture

ZIG = "ziglang"

# The version of glibc that libraries need at least: that of the tag `manylinux2014`.
C_LIBRARY = "2.17"

COMPILERS = ("cc", "gcc", "clang")


class NoLinker(RuntimeError):
    """There is nothing to link with."""


def link(objects: Iterable[Path], path: str, machine: str) -> None:
    """Write a shared library at once or not at all.

    Args:
        objects: The object files.
        path: Where it is to be.
        machine: The architecture, as Linux calls it.

    Raises:
        NoLinker: Neither zig nor, for this machine's architecture, a C compiler is installed.
        RuntimeError: The linker fails; with its message.
        OSError: The library cannot be written.
    """
    folder = os.path.dirname(path)
    make_folder(folder)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".link-") as own:
        draft = os.path.join(own, "library")
        names = os.path.join(own, "objects")
        Path(names).write_text("\n".join(f'"{each}"' for each in objects))
        command = [*_linker(machine), "-shared", "-nostdlib", "-s", "-o", draft, f"@{names}"]
        done = subprocess.run(
            [*command, "-lc", "-lm"],
            env=os.environ | dict.fromkeys(("ZIG_LOCAL_CACHE_DIR", "ZIG_GLOBAL_CACHE_DIR"), own),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"{command[0]} could not link: {done.stderr.strip()[-2000:]}")
        _settle(draft)
        os.replace(draft, path)


def _linker(machine: str) -> list[str]:
    if find_spec(ZIG) is not None:
        return [sys.executable, "-m", ZIG, "cc", "-target", f"{machine}-linux-gnu.{C_LIBRARY}"]
    found = filter(None, map(shutil.which, COMPILERS if machine == architecture() else ()))
    if (compiler := next(found, None)) is not None:
        return [compiler]
    raise NoLinker(f"there is no linker for {machine}: pip install {ZIG}")


def _settle(path: str) -> None:
    """Have a file on the disk, and readable like others, before it gets its name."""
    descriptor = os.open(path, os.O_RDWR)
    try:
        os.fchmod(descriptor, 0o644)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
