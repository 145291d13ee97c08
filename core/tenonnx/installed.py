"""Installed distributions and their entry points.

``importlib.metadata`` has them too, but takes longer to import than all modules of this package
that a session uses. It is asked where distributions come from anywhere but folders.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import sys
import time
from collections.abc import Iterator
from importlib.machinery import ModuleSpec, PathFinder, all_suffixes
from typing import Any

from tenonnx.records import NamedTuple

INFO = (".dist-info", ".egg-info")
ALIKE = str.maketrans("_.", "--")

SETTLED = 2_000_000_000
"""Nanoseconds after which a folder's time of change tells any further change: clocks of file
systems have steps."""

_announced: dict[str, tuple[Any, list[EntryPoint]]] = {}
"""Entry points by the names that they were looked for, and the states of folders on the path."""


class EntryPoint(NamedTuple):
    """An object that a distribution announces.

    Attributes:
        name: Its name in the metadata.
        value: Where it is: ``module`` or ``module:attribute``.
        distribution: Name of the distribution.
        version: Its version.
    """

    name: str
    value: str
    distribution: str
    version: str

    def load(self) -> Any:
        """Imports the object."""
        module, _, attributes = self.value.partition("[")[0].partition(":")
        names = filter(None, attributes.strip().split("."))
        return functools.reduce(getattr, names, importlib.import_module(module.strip()))


def entry_points(group: str) -> list[EntryPoint]:
    """Returns what installed distributions announce under a name.

    They are read again when a folder on the path has changed: no distribution comes or goes
    without that.
    """
    state = _settled(tuple(sys.path))
    if state is not None and group in _announced and _announced[group][0] == state:
        return list(_announced[group][1])
    for known in (_folders, _names, _has_archives):
        known.cache_clear()
    found = list(_entry_points(group))
    if state is not None:
        _announced[group] = state, found
    return list(found)


def _settled(path: tuple[str, ...]) -> Any:
    """Returns the states of the folders on a path; ``None`` if a change may leave them alike."""
    if _finders():
        return None
    states = []
    for folder in path:
        try:
            status = os.stat(folder or ".")  # noqa: PTH116 - a string
        except OSError:
            states.append((folder, 0, 0, 0))
        else:
            states.append((folder, status.st_dev, status.st_ino, status.st_mtime_ns))
    newest = max((changed for *_, changed in states), default=0)
    return None if newest > time.time_ns() - SETTLED else states


def _entry_points(group: str) -> Iterator[EntryPoint]:
    if _elsewhere():
        from importlib import metadata

        found = [
            EntryPoint(e.name, e.value, e.dist.name, e.dist.version)
            for e in metadata.entry_points(group=group)
            if e.dist is not None
        ]
        yield from dict.fromkeys(found)
        return
    heading = f"[{group}]"
    for folder in _folders(tuple(sys.path)).values():
        if heading in (text := read(folder, "entry_points.txt")):
            whose = _name_and_version(folder)
            for name, _, value in _section(text, heading):
                yield EntryPoint(name.strip(), value.strip(), *whose)


def version(distribution: str) -> str | None:
    """Returns the version of an installed distribution, or ``None``."""
    return _version(distribution, tuple(sys.path))


def release() -> str:
    """Returns this package's own version."""
    return version("tenonnx") or "unreleased"


def installations() -> tuple[str, ...]:
    """Returns the folders of all distributions' metadata, whose names have their versions."""
    return tuple(sorted(_folders(tuple(sys.path)).values()))


def folder(distribution: str) -> str | None:
    """Returns the folder of an installed distribution's metadata; ``None`` if it is elsewhere."""
    return _folders(tuple(sys.path)).get(_key(distribution))


@functools.cache
def _version(distribution: str, path: tuple[str, ...]) -> str | None:
    if _elsewhere():
        from importlib import metadata

        try:
            return metadata.version(distribution)
        except metadata.PackageNotFoundError:
            return None
    folder = _folders(path).get(_key(distribution))
    return None if folder is None else _name_and_version(folder)[1]


def _elsewhere() -> bool:
    """Says whether distributions may be in other places than folders on the path."""
    return _finders() or _has_archives(tuple(sys.path))


def _finders() -> bool:
    """Says whether others than folders are asked for distributions."""
    return any(
        finder is not PathFinder and hasattr(finder, "find_distributions")
        for finder in sys.meta_path
    )


@functools.cache
def _has_archives(path: tuple[str, ...]) -> bool:
    return any(each.endswith(".egg") or os.path.isfile(each) for each in path)  # noqa: PTH113


@functools.cache
def _folders(path: tuple[str, ...]) -> dict[str, str]:
    """Returns the metadata of distributions; what comes earlier on the path hides its namesakes."""
    found: dict[str, str] = {}
    for folder, names in _names(path).items():
        for entry in names:
            if entry.endswith(INFO):
                name = entry.rpartition(".")[0].partition("-")[0]
                found.setdefault(_key(name), os.path.join(folder, entry))  # noqa: PTH118
    return found


@functools.cache
def _names(path: tuple[str, ...]) -> dict[str, frozenset[str]]:
    """Returns the names in each folder of a path."""
    found = {}
    for folder in dict.fromkeys(path):
        with contextlib.suppress(OSError):
            # Half the time of a scandir.
            found[folder] = frozenset(os.listdir(folder or "."))  # noqa: PTH208
    return found


def _key(name: str) -> str:
    """Returns a distribution's name without what does not tell names apart."""
    alike = name.translate(ALIKE).lower()
    return "-".join(filter(None, alike.split("-"))) if "--" in alike else alike


def read(folder: str, file: str) -> str:
    """Returns the text of a file in a distribution's metadata; none if there is no such file."""
    path = f"{folder}/{file}"
    if not os.access(path, os.R_OK):  # an exception takes three times as long
        return ""
    try:
        # A file object makes twice the system calls for each of hundreds of files.
        descriptor = os.open(path, os.O_RDONLY)
        try:
            pieces = iter(functools.partial(os.read, descriptor, 1 << 16), b"")
            return b"".join(pieces).decode(errors="replace")
        finally:
            os.close(descriptor)
    except OSError:
        return ""


def spec(name: str) -> ModuleSpec | None:
    """Returns the spec of a package or module that is in no package; does not import it.

    ``importlib.util`` would do so too, but its import takes longer than the call.
    """
    if name in sys.modules:
        return getattr(sys.modules[name], "__spec__", None)
    finders = (finder for finder in sys.meta_path if hasattr(finder, "find_spec"))
    return next(filter(None, (finder.find_spec(name, None) for finder in finders)), None)


def place(name: str) -> str | None:
    """Returns the folder of a package, or the file of a module, that is in no package.

    Looks at the names in the folders on the path, as importers look at each folder, and at files in
    it, for each package anew.
    """
    if name in sys.modules:
        return _origin(sys.modules[name].__spec__)
    for finder in sys.meta_path:
        if finder is PathFinder and (folder := _in_folders(name)) is not None:
            return folder
        if hasattr(finder, "find_spec") and (found := finder.find_spec(name, None)) is not None:
            return _origin(found)
    return None


def _origin(found: ModuleSpec | None) -> str | None:
    if found is None:
        return None
    folders = list(found.submodule_search_locations or ())
    return folders[0] if folders else found.origin


def _in_folders(name: str) -> str | None:
    """Returns the folder of a package; ``None`` if it is not so plain where it is."""
    if _has_archives(tuple(sys.path)):
        return None
    for folder, names in _names(tuple(sys.path)).items():
        if name in names:
            found = f"{folder or os.getcwd()}/{name}"  # noqa: PTH109 - a string
            return found if os.path.isfile(f"{found}/__init__.py") else None  # noqa: PTH113
        if not names.isdisjoint(name + suffix for suffix in _suffixes()):
            return None
    return None


@functools.cache
def _suffixes() -> tuple[str, ...]:
    return tuple(all_suffixes())


def _section(text: str, heading: str) -> Iterator[tuple[str, str, str]]:
    inside = False
    for line in map(str.strip, text.splitlines()):
        if line.startswith("["):
            inside = line == heading
        elif inside and "=" in line and not line.startswith(("#", ";")):
            yield line.partition("=")


def _name_and_version(folder: str) -> tuple[str, str]:
    text = read(folder, "METADATA") or read(folder, "PKG-INFO")
    fields: dict[str, str] = {}
    for line in text.partition("\n\n")[0].splitlines():  # a README follows
        field, _, value = line.partition(": ")
        fields.setdefault(field.lower(), value.strip())
    stem = os.path.splitext(os.path.basename(folder))[0]  # noqa: PTH119, PTH122 - without pathlib
    return fields.get("name", stem), fields.get("version", "")
