"""The folder of compiled kernels, and how they are known to be of this source and this machine."""

from __future__ import annotations

import functools
import hashlib
import mmap
import os
import platform
import re
import sys
import time
from pathlib import Path

import numpy as np
import platformdirs

from tenonnx.plugins.installed import version
from tenonnx_cpu.jit.code.cpu import description

IMPORT = re.compile(r"^from (tenonnx_cpu[\w.]*) import (.*)", re.MULTILINE)
WORD = re.compile(r"\w+")

KERNELS = Path(__file__).parents[1]
ROOT = KERNELS.parent

BEGAN = time.time()
"""When this process began to import what is here."""

PROCESSOR = (
    "vendor_id", "cpu family", "model", "flags",
    "CPU implementer", "CPU architecture", "CPU variant", "CPU part", "Features",
)  # fmt: skip
"""What of a processor's description decides which instructions LLVM chooses."""

VARIABLES = ("NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES", "NUMBA_OPT")
"""Variables of numba that decide so, too."""


@functools.cache
def cache_folder() -> Path:
    """Returns the folder: ``NUMBA_CACHE_DIR``, or one beside side files."""
    root = os.environ.get("TENONNX_CACHE_DIR") or platformdirs.user_cache_dir("tenonnx")
    return Path(os.environ.get("NUMBA_CACHE_DIR") or Path(root, "numba"), "tenonnx")


def image_path(file: Path, name: str) -> Path:
    """Returns where the image of a kernel, or of a module's shared functions, is kept."""
    stamp = f"{source_stamp(file)[:16]}-{machine_stamp()[:16]}"
    inside = file.relative_to(KERNELS) if file.is_relative_to(KERNELS) else Path(file.name)
    module = ".".join(inside.with_suffix("").parts)
    return cache_folder() / f"{module}.{name}-{stamp}.image"


@functools.cache
def machine_stamp() -> str:
    """Returns a digest of all but the source that an image depends on."""
    facts = [
        platform.machine(),
        mmap.PAGESIZE,
        sys.implementation.cache_tag,
        getattr(sys, "abiflags", ""),
        object.__basicsize__,
        np.lib.NumpyVersion(np.__version__).major,
        *(description().get(name) for name in PROCESSOR),
        *(os.environ.get(name) for name in VARIABLES),
    ]
    return hashlib.sha256(repr(facts).encode()).hexdigest()


@functools.cache
def source_stamp(path: Path) -> str:
    """Returns a digest of a module of this package and of all that it imports from it."""
    digest = hashlib.sha256(str(version("numba")).encode())
    waiting, seen = [path], {path}
    while waiting:
        content, files = _read(waiting.pop())
        digest.update(content)
        waiting += (file for file in files if file not in seen)
        seen.update(files)
    return digest.hexdigest()


@functools.cache
def _read(path: Path) -> tuple[bytes, tuple[Path, ...]]:
    """Returns a digest of a file and the files that it imports from this package."""
    source = path.read_text("utf-8")
    digest = hashlib.sha256(source.encode())
    if path.stat().st_ctime > BEGAN:
        # An upgrade, perhaps: which version this process has imported is unknown, so that it must
        # neither take the kernels of others nor leave them its own.
        digest.update(f"{os.getpid()} {BEGAN}".encode())
    modules = _modules()
    names = dict.fromkeys(
        name
        for module, things in IMPORT.findall(source)
        for name in (module, *(f"{module}.{thing}" for thing in WORD.findall(things)))
    )
    files = tuple(modules[name] for name in names if name in modules)
    return digest.digest(), files


@functools.cache
def _modules() -> dict[str, Path]:
    """Returns the files of this package's modules by name."""
    found = {}
    for folder, _, files in os.walk(ROOT):
        package = ".".join((ROOT.name, *Path(folder).relative_to(ROOT).parts))
        for file in files:
            if file.endswith(".py"):
                found[f"{package}.{file.removesuffix('.py')}"] = Path(folder, file)
    return found
