"""Which distributions are installed, and their entry points.

``importlib.metadata`` says so, too, but takes longer to import than a session takes for everything
else of this package. It is asked where distributions come from anywhere but folders.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import sys
from collections.abc import Iterator
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from tenonnx.records import NamedTuple

INFO = (".dist-info", ".egg-info")
ALIKE = str.maketrans("_.", "--")


class EntryPoint(NamedTuple):
    """An object that a distribution announces.

    Attributes:
        name: What it is announced as.
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
    """Returns what installed distributions announce under a name."""
    if _elsewhere():
        from importlib import metadata

        found = [
            EntryPoint(e.name, e.value, e.dist.name, e.dist.version)
            for e in metadata.entry_points(group=group)
            if e.dist is not None
        ]
        return list(dict.fromkeys(found))
    heading = f"[{group}]"
    announced = []
    _folders.cache_clear()
    for folder in _folders(tuple(sys.path)).values():
        if heading in (text := read(folder, "entry_points.txt")):
            whose = _name_and_version(folder)
            for name, _, value in _section(text, heading):
                announced.append(EntryPoint(name.strip(), value.strip(), *whose))
    return announced


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
    return any(
        finder is not PathFinder and hasattr(finder, "find_distributions")
        for finder in sys.meta_path
    ) or any(path.endswith(".egg") or os.path.isfile(path) for path in sys.path)  # noqa: PTH113


@functools.cache
def _folders(path: tuple[str, ...]) -> dict[str, str]:
    """Returns the metadata of distributions; what comes earlier on the path hides its namesakes."""
    found: dict[str, str] = {}
    for folder in dict.fromkeys(path):
        with contextlib.suppress(OSError), os.scandir(folder or ".") as entries:
            for entry in entries:
                if entry.name.endswith(INFO):
                    name = entry.name.rpartition(".")[0].partition("-")[0]
                    found.setdefault(_key(name), entry.path)
    return found


def _key(name: str) -> str:
    """Returns a distribution's name without what does not tell names apart."""
    alike = name.translate(ALIKE).lower()
    return "-".join(filter(None, alike.split("-"))) if "--" in alike else alike


def read(folder: str, file: str) -> str:
    """Returns the text of a file in a distribution's metadata; none if there is no such file."""
    try:
        # A path object and a decoder for each of hundreds of files take longer than reading them.
        with open(f"{folder}/{file}", "rb", buffering=0) as content:  # noqa: PTH123
            return content.read().decode(errors="replace")
    except OSError:
        return ""


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
    for line in text.splitlines():
        if not line:
            break
        field, _, value = line.partition(": ")
        fields.setdefault(field.lower(), value.strip())
    return fields.get("name", Path(folder).stem), fields.get("version", "")
