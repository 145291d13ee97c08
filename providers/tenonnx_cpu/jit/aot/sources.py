"""The sources of kernels: digests of a module and of all that it imports, and of all of them."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterator

from tenonnx.weights.digest import digest
from tenonnx_cpu.jit.packages import OWN, Package

# An import at the top of a module, and the names that it imports.
IMPORT = r"(?m)^(?:from (\.*[\w.]*) import (\([^)]*\)|.*)|import ([\w.]+))"

# The name of folders of kernels.
FAMILIES = "kernels"

COMPILED_FOLDERS = ("jit/code", "jit/threads", "jit/vectors")
# The folders and files of this package, beside the families', that kernels are compiled from.
COMPILED_FILES = (
    *("jit/__init__.py", "jit/compiling.py", "jit/layout.py"),
    "jit/aot/pool_functions.py",
)


class Unfounded(ValueError):
    """A kernel imports what its library's name does not depend on."""


def name_of(file: str, package: Package = OWN) -> str:
    """Return a module's name as kernels have it: ``family.name``, or ``jit`` and more."""
    parts = module_of(file, package).split(".")[1:]
    return ".".join(part for part in parts if part != FAMILIES)


def module_of(file: str, package: Package = OWN) -> str:
    """Return the full name of a module."""
    path = os.path.splitext(os.path.relpath(file, package.root))[0]
    return ".".join((package.name, *path.split(os.sep)))


def digest_of_all(package: Package = OWN) -> str:
    """Return a digest of all that a package's kernels are compiled from.

    That takes some milliseconds.
    """
    files = sorted(files_of(package))
    return digest("\n".join(f"{os.path.relpath(f, package.root)} {_content(f)}" for f in files))


def digest_of(file: str, package: Package = OWN) -> str:
    """Return a digest of a module and of all that it imports of its package and of this one."""
    waiting = [os.path.abspath(file)]
    seen = dict.fromkeys(waiting)
    while waiting:
        for _, found in _imports(waiting.pop(), package):
            for each in found:
                if each not in seen:
                    seen[each] = None
                    waiting.append(each)
    return digest("\n".join(map(_content, seen)))


def require_founded(file: str, package: Package) -> None:
    """Make sure that a module of kernels imports nothing of its package but such modules.

    Raises:
        Unfounded: It does: after a change of that, the library would be taken for what it is not.
    """
    known = set(files_of(package))
    for module, found in _imports(file, package):
        if module.partition(".")[0] == package.name and not known.issuperset(found or [module]):
            raise Unfounded(
                f"{name_of(file, package)} imports {module}, which is no module of kernels: "
                f"put what they share into a module of a folder {FAMILIES}"
            )


def folders_of(package: Package) -> list[str]:
    """Return the folders of a package's kernels."""
    inner = sorted(each.path for each in os.scandir(package.root) if each.is_dir())
    found = (os.path.join(folder, FAMILIES) for folder in (package.root, *inner))
    return [folder for folder in found if os.path.isdir(folder)]


def files_of(package: Package) -> Iterator[str]:
    """Yield the files of all sources of a package's kernels."""
    folders = [os.path.join(OWN.root, each) for each in COMPILED_FOLDERS]
    yield from (os.path.join(OWN.root, each) for each in COMPILED_FILES)
    for folder in folders_of(package):
        above = os.path.join(os.path.dirname(folder), "__init__.py")
        if os.path.exists(above):
            yield above
        folders.append(folder)
    for folder in folders:
        names = (entry.name for entry in os.scandir(folder))
        yield from (os.path.join(folder, name) for name in names if name.endswith(".py"))


@functools.cache
def _content(file: str) -> str:
    with open(file, "rb", buffering=0) as opened:
        return digest(opened.read())


# A module that is imported, and the files of it and of its submodules that are.
Imported = tuple[str, tuple[str, ...]]


@functools.cache
def _imports(file: str, package: Package) -> tuple[Imported, ...]:
    """Return what one of a package's files imports of the package and of this one."""
    with open(file, encoding="utf-8") as opened:
        source = opened.read()
    found = []
    for relative, things, absolute in re.findall(IMPORT, source):
        level = len(relative) - len(relative.lstrip("."))
        module = relative[level:] or absolute
        if level:
            own = module_of(file, package).split(".")
            module = ".".join(filter(None, (*own[:-level], module)))
        names = (module, *(f"{module}.{thing}" for thing in re.findall(r"\w+", things)))
        files = (_file_of(name, package) for name in names)
        found.append((module, tuple(each for each in files if each is not None)))
    return tuple(found)


@functools.cache
def _file_of(module: str, package: Package) -> str | None:
    """Return the file of a module of a package or of this one; ``None`` if it is of neither."""
    name, *within = module.split(".")
    root = {OWN.name: OWN.root, package.name: package.root}.get(name)
    if root is None or not within:
        return None
    path = os.path.join(root, *within)
    return next(filter(os.path.isfile, (f"{path}.py", os.path.join(path, "__init__.py"))), None)
