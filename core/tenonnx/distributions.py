"""Installed distributions, which ``importlib.metadata`` finds; once for each ``sys.path``."""

from __future__ import annotations

import functools
import os
import re
import sys
from importlib import metadata
from typing import Any, NamedTuple


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
        """Import the object."""
        return metadata.EntryPoint(self.name, self.value, "").load()


def entry_points(group: str) -> list[EntryPoint]:
    """Return what installed distributions announce under a name."""
    return list(_announced(group, tuple(sys.path)))


def version(distribution: str) -> str | None:
    """Return the version of an installed distribution, or ``None``."""
    return _found(distribution, tuple(sys.path))[1]


def release() -> str:
    """Return this package's own version."""
    return version("tenonnx") or "unreleased"


def record(distribution: str) -> str | None:
    """Return the list of a distribution's installed files; ``None`` if it has none in a folder."""
    found, number = _found(distribution, tuple(sys.path))
    if found is None:
        return None
    name = re.sub(r"[-_.]+", "_", distribution)
    path = str(found.locate_file(f"{name}-{number}.dist-info/RECORD"))
    return path if os.path.isfile(path) else None  # noqa: PTH113 - a string, as those beside it


@functools.cache
def _announced(group: str, path: tuple[str, ...]) -> tuple[EntryPoint, ...]:
    del path  # it is what was looked through
    names: dict[int, tuple[str, str]] = {}
    found = []
    for each in metadata.entry_points(group=group):
        if (whose := each.dist) is not None:
            if id(whose) not in names:  # each look reads the metadata
                described = whose.metadata
                names[id(whose)] = described["Name"], described["Version"]
            found.append(EntryPoint(each.name, each.value, *names[id(whose)]))
    return tuple(dict.fromkeys(found))


@functools.cache
def _found(name: str, path: tuple[str, ...]) -> tuple[metadata.Distribution | None, str | None]:
    del path
    try:
        found = metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return None, None
    return found, found.version
