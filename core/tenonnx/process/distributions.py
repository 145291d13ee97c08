"""Installed distributions, which ``importlib.metadata`` finds; once for each ``sys.path``.

That takes 30 ms to import, so versions and lists of files are found by the names of folders, as the
specification of installed projects has them. Entry points and archives are left to it.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import sys
from typing import Any, NamedTuple

INFO = ".dist-info"

# The version of a package that is not installed, as in some packed programs.
UNRELEASED = "unreleased"


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

    @property
    def package(self) -> str:
        """The package that the object is in."""
        return self.value.partition(":")[0].partition(".")[0]

    def load(self) -> Any:
        """Import the object."""
        from importlib import metadata

        return metadata.EntryPoint(self.name, self.value, "").load()


def entry_points(group: str) -> list[EntryPoint]:
    """Return what installed distributions announce under a name."""
    return list(_announced(group, tuple(sys.path)))


def version(distribution: str) -> str | None:
    """Return the version of an installed distribution, or ``None``."""
    path = tuple(sys.path)
    known = _folders(path).get(_normalized(distribution))
    if known is not None and known.endswith(INFO):
        return known.removesuffix(INFO).rpartition("-")[2]
    if known is None and not any(map(os.path.isfile, path)):  # there are no archives
        return None
    from importlib import metadata

    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def release() -> str:
    """Return this package's own version, or ``UNRELEASED``."""
    return version("tenonnx") or UNRELEASED


def record(distribution: str) -> str | None:
    """Return the list of a distribution's installed files; ``None`` if it has none in a folder."""
    folder = _folders(tuple(sys.path)).get(_normalized(distribution))
    path = os.path.join(folder or "", "RECORD")
    return path if folder is not None and os.path.isfile(path) else None


def places(path: tuple[str, ...]) -> list[str]:
    """Return the folders of distributions' metadata on a path, and archives, which have some."""
    return sorted([*_folders(path).values(), *filter(os.path.isfile, path)])


def _normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "_", name).lower()


@functools.cache
def _folders(path: tuple[str, ...]) -> dict[str, str]:
    """Return the folders of distributions' metadata, ``name-version.dist-info``, by name."""
    found: dict[str, str] = {}
    for place in path:
        with contextlib.suppress(OSError):
            for name in os.listdir(place or "."):
                if name.endswith(INFO):
                    own = name.removesuffix(INFO).rpartition("-")[0]
                elif name.endswith(".egg-info"):
                    own = name.removesuffix(".egg-info").partition("-")[0]
                else:
                    continue
                found.setdefault(_normalized(own), os.path.join(place, name))
    return found


@functools.cache
def _announced(group: str, path: tuple[str, ...]) -> tuple[EntryPoint, ...]:
    del path  # it is what was looked through
    names: dict[int, tuple[str, str]] = {}
    found = []
    from importlib import metadata

    for each in metadata.entry_points(group=group):
        if (whose := each.dist) is not None:
            if id(whose) not in names:  # each look reads the metadata
                described = whose.metadata
                names[id(whose)] = described["Name"], described["Version"]
            found.append(EntryPoint(each.name, each.value, *names[id(whose)]))
    return tuple(dict.fromkeys(found))
