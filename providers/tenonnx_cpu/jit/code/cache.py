"""The folder of compiled kernels, and how they are known to be of this source and this machine."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from tenonnx.process.distributions import record, version
from tenonnx.weights.digest import digest
from tenonnx.weights.folder import cache_root
from tenonnx.weights.folder import forget_unused as unused_forgotten
from tenonnx.weights.trusted import is_trusted, open_trusted, read_trusted
from tenonnx_cpu.jit.code.cpu import (
    architecture,
    cpu,
    description,
    installed,
    own_code,
    target,
)
from tenonnx_cpu.jit.code.sources import INDEX, ROOT, Sources

if TYPE_CHECKING:
    from pathlib import Path

PROCESSOR = (
    "vendor_id", "cpu family", "model", "flags",
    "CPU implementer", "CPU architecture", "CPU variant", "CPU part", "Features",
)  # fmt: skip
"""The parts of a processor's description by which LLVM chooses instructions."""

VARIABLES = ("NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES")
"""Variables of numba that decide so, too."""

COMPILER = "compiler"
"""The file that says which version of numba compiled last."""


@functools.cache
def cache_folder() -> str:
    """Return the folder: ``NUMBA_CACHE_DIR``, or one beside side files."""
    folder = os.environ.get("NUMBA_CACHE_DIR") or os.path.join(cache_root(), "numba")
    return os.path.join(folder, "tenonnx")


def code_path(file: str, name: str) -> str:
    """Return where the code of a kernel, or of a module's shared functions, is or may be kept.

    That is the cache, unless a code object is installed that is trusted.
    """
    start = f"{name_of(file)}.{name}-{source_stamp(file)[:16]}"
    if (folder := installed()) is not None:
        path = os.path.join(folder, f"{start}-{_installed_stamp(folder)[:16]}.image")
        with contextlib.suppress(OSError):
            os.close(open_trusted(path, own_code()))
            return path
    return os.path.join(cache_folder(), f"{start}-{machine_stamp(compiler())[:16]}.image")


def name_of(file: str) -> str:
    """Return a module's name as kernels have it; see ``sources.module_of``."""
    within = f"{ROOT}{os.sep}"
    inside = file.removeprefix(within) if file.startswith(within) else os.path.basename(file)
    parts = os.path.splitext(inside)[0].split(os.sep)
    return ".".join(part for part in parts if part != "kernels")


@functools.cache
def compiler() -> str | None:
    """Return the version of numba that compiles: of the one that is installed.

    Where none is, of that which last compiled into the cache; ``None`` if none did.
    """
    return version("numba") or signed(cache_folder())


def signed(folder: str) -> str | None:
    """Return the version of numba that last compiled into a folder."""
    like = own_code() if folder == installed() else None
    with contextlib.suppress(OSError, UnicodeError):
        return read_trusted(os.path.join(folder, COMPILER), like).decode("ascii")
    return None


@functools.cache
def _installed_stamp(folder: str) -> str:
    return machine_stamp(signed(folder))


@functools.cache
def machine_stamp(compiler: str | None) -> str:
    """Return a digest of all but the source that a code object depends on.

    Args:
        compiler: The version of numba that compiled it.
    """
    facts = [
        compiler,
        sys.implementation.name,
        object.__basicsize__,  # free-threaded builds of CPython have more in every object
        np.__version__.partition(".")[0],
        os.environ.get("NUMBA_OPT"),
        *([chosen.kind] if (chosen := target()) else _processor()),
    ]
    return digest(repr(facts))


def _processor() -> Iterator[str | None]:
    yield architecture()
    yield from (description().get(name) for name in PROCESSOR)
    yield from (os.environ.get(name) for name in VARIABLES)
    yield str(cpu().amx)  # the system may not lend what the processor has


def source_stamp(path: str) -> str:
    """Return a digest of a module of this package and of all that it imports; see ``Sources``."""
    return _sources().stamp(path)


def refuse_changed() -> None:
    """Make sure that stamps are of what this process has imported; see ``Sources``."""
    _sources().refuse_changed()


@functools.cache
def _sources() -> Sources:
    index = os.path.join(cache_folder(), f"{digest(ROOT)[:16]}.sources")
    if (folder := installed()) is None:
        return Sources(index)
    return Sources(index, os.path.join(folder, INDEX), _listed())


def _listed() -> int:
    """Return when the list of this package's files was written; 0 if it is not installed so."""
    listed = record("tenonnx")
    if listed is not None and os.path.dirname(os.path.dirname(listed)) == os.path.dirname(ROOT):
        with contextlib.suppress(OSError):
            return os.stat(listed).st_mtime_ns
    return 0


def cached_files() -> Iterator[Path]:
    """Yield the files that are kept."""
    from pathlib import Path  # few processes list them

    with contextlib.suppress(OSError):
        if is_trusted(cache_folder()):
            yield from (path for path in Path(cache_folder()).iterdir() if path.is_file())


def forget_unused() -> list[Path]:
    """Delete the files that no process has used for a month; what is mapped stays so."""
    return unused_forgotten(path for path in cached_files() if path.name != COMPILER)
