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
from collections.abc import Iterator
from importlib.machinery import ModuleSpec, PathFinder
from typing import Any

from tenonnx.records import NamedTuple

INFO = (".dist-info", ".egg-info")
ALIKE = str.maketrans("_.", "--")


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
        with contextlib.suppress(OSError):
            for entry in os.listdir(folder or "."):  # noqa: PTH208 - half the time of a scandir
                if entry.endswith(INFO):
                    name = entry.rpartition(".")[0].partition("-")[0]
                    found.setdefault(_key(name), os.path.join(folder, entry))  # noqa: PTH118
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
        # A path object and a decoder for each of hundreds of files take longer than reading them.
        with open(path, "rb", buffering=0) as content:  # noqa: PTH123
            return content.read().decode(errors="replace")
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
