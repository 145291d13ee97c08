"""The registered regions of shared memory: of one process, or of all workers of a server.

Workers share a folder with a file for each region, and look at it before each use. So all workers
see what one of them registers or unregisters.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True)
class Region:
    """A registered region.

    Attributes:
        name: The region's name in requests.
        key: The name of the shared memory in the system.
        offset: Where the region begins in it, in bytes.
        byte_size: The region's length.
        token: Of this registration: a later one may be of other memory with the same name.
    """

    name: str
    key: str
    offset: int
    byte_size: int
    token: str = field(default_factory=lambda: secrets.token_hex(8))

    def as_json(self) -> dict[str, str | int]:
        """Return the region's description for clients."""
        facts = asdict(self)
        del facts["token"]
        return facts


class Registered(Protocol):
    """The registered regions, by name."""

    def add(self, region: Region) -> bool:
        """Add a region; return whether its name was free."""

    def remove(self, name: str) -> None:
        """Remove a region, if it is there."""

    def get(self, name: str) -> Region | None:
        """Return a region; ``None`` if there is none of that name."""

    def names(self) -> list[str]:
        """Return the names."""


class OwnRegions:
    """The regions of one process."""

    def __init__(self) -> None:
        self._regions: dict[str, Region] = {}

    def add(self, region: Region) -> bool:
        """Add a region; return whether its name was free."""
        return self._regions.setdefault(region.name, region) is region

    def remove(self, name: str) -> None:
        """Remove a region, if it is there."""
        self._regions.pop(name, None)

    def get(self, name: str) -> Region | None:
        """Return a region; ``None`` if there is none of that name."""
        return self._regions.get(name)

    def names(self) -> list[str]:
        """Return the names."""
        return list(self._regions)


class SharedRegions:
    """The regions of several processes.

    Args:
        folder: A folder of these processes alone.
    """

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        self._read: dict[str, tuple[tuple[int, int], Region]] = {}

    def _file(self, name: str) -> Path:
        return self._folder / name.encode("utf-8", "surrogatepass").hex()

    def add(self, region: Region) -> bool:
        """Add a region; return whether its name was free."""
        draft = self._folder / f".{region.token}"
        draft.write_text(json.dumps(asdict(region)))
        try:
            os.link(draft, self._file(region.name))  # fails if the file exists
        except FileExistsError:
            return False
        finally:
            draft.unlink()
        return True

    def remove(self, name: str) -> None:
        """Remove a region, if it is there."""
        self._read.pop(name, None)
        with contextlib.suppress(OSError):  # a name that is too long does not exist either
            self._file(name).unlink()

    def get(self, name: str) -> Region | None:
        """Return a region; ``None`` if there is none of that name."""
        try:
            found = self._file(name).stat()
        except OSError:
            self._read.pop(name, None)
            return None
        state = (found.st_ino, found.st_mtime_ns)
        if (known := self._read.get(name)) is None or known[0] != state:
            try:
                region = Region(**json.loads(self._file(name).read_text()))
            except OSError:
                return None
            known = self._read[name] = (state, region)
        return known[1]

    def names(self) -> list[str]:
        """Return the names."""
        files = (path.name for path in self._folder.iterdir() if not path.name.startswith("."))
        return [bytes.fromhex(file).decode("utf-8", "surrogatepass") for file in files]
