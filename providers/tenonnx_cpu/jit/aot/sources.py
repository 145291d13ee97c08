"""The sources of kernels: digests of a module and of all that it imports, and of all of them."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterator

from tenonnx.weights.digest import digest
from tenonnx_cpu.jit.code.cpu import PACKAGE

IMPORT, WORD = r"(?m)^from (tenonnx_cpu[\w.]*) import (.*)", r"\w+"
"""The one form in which kernels import from this package, and the names that it imports."""

ROOT = PACKAGE

FAMILIES = "kernels"
"""The name of a family's folder of kernels."""

COMPILED_FOLDERS = ("jit/code", "jit/threads", "jit/vectors")
COMPILED_FILES = ("jit/__init__.py", "jit/compiling.py", "jit/layout.py")
"""The folders and files of this package, beside the families', that kernels are compiled from."""


def module_of(name: str) -> str:
    """Return the full name of a module of kernels: ``family.name``, or ``jit`` and more."""
    family, _, own = name.partition(".")
    package = os.path.basename(ROOT)
    return f"{package}.{name}" if family == "jit" else f"{package}.{family}.{FAMILIES}.{own}"


def name_of(file: str) -> str:
    """Return a module's name as kernels have it; see ``module_of``."""
    parts = os.path.splitext(os.path.relpath(file, ROOT))[0].split(os.sep)
    return ".".join(part for part in parts if part != FAMILIES)


def digest_of_all() -> str:
    """Return a digest of all that kernels are compiled from, which takes some milliseconds."""
    return digest("\n".join(f"{name} {_content(name)}" for name in sorted(_all())))


def digest_of(file: str) -> str:
    """Return a digest of a module and of all of this package that it imports."""
    waiting = [os.path.relpath(file, ROOT)]
    seen = dict.fromkeys(waiting)
    while waiting:
        for each in _imports(waiting.pop()):
            if each not in seen:
                seen[each] = None
                waiting.append(each)
    return digest("\n".join(map(_content, seen)))


def _all() -> Iterator[str]:
    """Yield the files of all kernels' sources, relative to this package."""
    yield from COMPILED_FILES
    folders = [*COMPILED_FOLDERS]
    for entry in os.scandir(ROOT):
        if os.path.isdir(os.path.join(entry.path, FAMILIES)):
            yield os.path.join(entry.name, "__init__.py")
            folders.append(os.path.join(entry.name, FAMILIES))
    for folder in folders:
        names = (entry.name for entry in os.scandir(os.path.join(ROOT, folder)))
        yield from (os.path.join(folder, name) for name in names if name.endswith(".py"))


@functools.cache
def _content(name: str) -> str:
    with open(os.path.join(ROOT, name), "rb", buffering=0) as file:
        return digest(file.read())


@functools.cache
def _imports(name: str) -> tuple[str, ...]:
    """Return the files of this package that one of them imports."""
    with open(os.path.join(ROOT, name), encoding="utf-8") as file:
        source = file.read()
    found = dict[str, None]()
    for module, things in re.findall(IMPORT, source):
        for each in (module, *(f"{module}.{thing}" for thing in re.findall(WORD, things))):
            if (path := _file_of(each)) is not None:
                found[path] = None
    return tuple(found)


@functools.cache
def _file_of(module: str) -> str | None:
    """Return the file of one of this package's modules, relative to it; ``None`` if none is."""
    within = os.path.join(*module.split(".")[1:], "") if "." in module else ""
    for path in (f"{within.rstrip(os.sep)}.py", os.path.join(within, "__init__.py")):
        if within and os.path.isfile(os.path.join(ROOT, path)):
            return path
    return None
