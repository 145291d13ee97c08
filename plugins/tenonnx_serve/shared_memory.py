"""Tensors in shared memory of POSIX: regions that clients register, and parts of them.

An input is read where it lies, and an output written where it is wanted; neither crosses the
connection. Integers of 32 and 64 bits are copied first: kernels compare indices with sizes before
they use them, and the client could change them in between. A client that truncates a region while
it is used ends the process that reads it; before each use the region's size is looked at.
"""

from __future__ import annotations

import mmap
import os
import stat
import threading
from typing import Any, Final

import numpy as np

from tenonnx_serve.errors import BadRequest, Missing
from tenonnx_serve.region_files import OwnRegions, Region, Registered, SharedRegions
from tenonnx_serve.requests import Array, Parameters, shown

FOLDER: Final = "/dev/shm"
MOST: Final = 1024
"""Regions that may be registered: each takes an open file."""

LONGEST: Final = 100
"""Letters of a region's name: it becomes a file's, in hexadecimal."""

INDICES: Final = frozenset({"INT32", "INT64"})
"""Datatypes whose values may be indices."""

REGION, OFFSET, SIZE = "shared_memory_region", "shared_memory_offset", "shared_memory_byte_size"


class Mapped:
    """A region's memory in this process.

    Args:
        region: Which.

    Raises:
        BadRequest: There is no such memory, or it is smaller.
    """

    def __init__(self, region: Region) -> None:
        self.region = region
        self._file = _opened(region.key)
        try:
            page = region.offset % mmap.ALLOCATIONGRANULARITY
            if not region.byte_size or self._size() < region.offset + region.byte_size:
                raise BadRequest(
                    f"shared memory {shown(region.key)} has no {region.byte_size} bytes at "
                    f"{region.offset}"
                )
            length = page + region.byte_size
            held = mmap.mmap(self._file, length, offset=region.offset - page)
        except BaseException:
            self.close()
            raise
        self.bytes = np.frombuffer(held, np.uint8)[page:]

    def _size(self) -> int:
        return os.fstat(self._file).st_size

    def part(self, offset: int, size: int) -> Array:
        """Returns some of its bytes, which are the region's.

        Raises:
            BadRequest: They go beyond its end, or the memory is smaller by now.
        """
        if offset < 0 or size < 0 or offset + size > self.region.byte_size:
            raise BadRequest(
                f"shared memory region {shown(self.region.name)} has {self.region.byte_size} "
                f"bytes; {size} at {offset} go beyond its end"
            )
        if self._size() < self.region.offset + self.region.byte_size:
            raise BadRequest(f"shared memory region {shown(self.region.name)} was truncated")
        return self.bytes[offset : offset + size]

    def close(self) -> None:
        """Closes the file; the memory goes with the last array in it."""
        os.close(self._file)


class Regions:
    """The regions that clients have registered. Used in the event loop's thread and in others.

    Args:
        folder: Of the workers of one server, where they share what is registered; none for one.
    """

    def __init__(self, folder: str = "") -> None:
        self._registered: Registered = SharedRegions(folder) if folder else OwnRegions()
        self._mapped: dict[str, Mapped] = {}
        self._lock = threading.Lock()

    def register(self, name: str, key: Any, offset: Any, byte_size: Any) -> None:
        """Registers memory that a client has.

        Raises:
            BadRequest: There is no such memory, or it is smaller, or the name is taken.
        """
        for what, given in (("offset", offset), ("byte_size", byte_size)):
            if type(given) is not int or not 0 <= given < 1 << 63:
                raise BadRequest(f"{what} is {shown(given)}; expected bytes")
        if not 0 < len(name) <= LONGEST:
            raise BadRequest(f"{shown(name)} is no name of a region: at most {LONGEST} letters")
        if len(self._registered.names()) >= MOST:
            raise BadRequest(f"there are {MOST} shared memory regions already")
        region = Region(name, key, offset, byte_size)
        mapped = Mapped(region)
        with self._lock:
            if not self._registered.add(region):
                mapped.close()
                raise BadRequest(f"shared memory region {shown(name)} is registered already")
            self._keep(name, mapped)

    def _keep(self, name: str, mapped: Mapped | None) -> None:
        before = self._mapped.pop(name, None)
        if before is not None:
            before.close()
        if mapped is not None:
            self._mapped[name] = mapped

    def unregister(self, name: str = "") -> None:
        """Forgets a region, or all of them; one that is not there is none to forget."""
        for one in [name] if name else self._registered.names():
            with self._lock:
                self._registered.remove(one)
                self._keep(one, None)

    def status(self, name: str = "") -> list[Region]:
        """Returns a region, or all of them.

        Raises:
            Missing: There is none of that name.
        """
        if name:
            return [self._find(name).region]
        found = map(self._registered.get, self._registered.names())
        return [region for region in found if region is not None]

    def _find(self, name: Any) -> Mapped:
        with self._lock:
            region = self._registered.get(name) if isinstance(name, str) else None
            mapped = self._mapped.get(name)
            if region is None:
                self._keep(name, None)
                raise Missing(f"there is no shared memory region {shown(name)}")
            if mapped is None or mapped.region != region:
                mapped = Mapped(region)
                self._keep(name, mapped)
            return mapped

    def close(self) -> None:
        """Closes what this process has open; what is registered stays so for others."""
        for name in list(self._mapped):
            self._keep(name, None)

    def read(self, parameters: Parameters, datatype: str) -> memoryview | None:
        """Returns an input's bytes, if its parameters say that they are in a region.

        Raises:
            ServeError: There is no such region, or no such part of it.
        """
        if (name := parameters.get(REGION)) is None:
            return None
        offset, size = _place(parameters)
        part = self._find(name).part(offset, size)
        return (part.copy() if datatype in INDICES else part).data

    def write(self, parameters: Parameters, data: Any) -> Parameters | None:
        """Writes an output's bytes, if its parameters say where to; returns what the answer says.

        Raises:
            ServeError: There is no such region, or it has no room for them.
        """
        if (name := parameters.get(REGION)) is None:
            return None
        offset, size = _place(parameters)
        if len(data) > size:
            raise BadRequest(f"an output has {len(data)} bytes; {SIZE} leaves it {size}")
        part = self._find(name).part(offset, len(data))
        part[:] = np.frombuffer(data, np.uint8)
        return {REGION: name, SIZE: len(data), OFFSET: offset}


def _place(parameters: Parameters) -> tuple[int, int]:
    offset, size = parameters.get(OFFSET, 0), parameters.get(SIZE)
    if type(offset) is not int or type(size) is not int:
        raise BadRequest(f"{SIZE} is {shown(size)}, {OFFSET} {shown(offset)}; expected bytes")
    return offset, size


def _opened(key: Any) -> int:
    """Opens shared memory by its name, which names nothing outside the system's folder of it.

    Raises:
        BadRequest: There is none of that name, or it is not this user's to map.
    """
    name = key.removeprefix("/") if isinstance(key, str) else ""
    if not name or "/" in name or "\0" in name or name in (".", "..") or name.startswith("sem."):
        raise BadRequest(f"{shown(key)} is no name of shared memory")
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        folder = os.open(FOLDER, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            file = os.open(name, flags, dir_fd=folder)
        finally:
            os.close(folder)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "its name"
        raise BadRequest(f"shared memory {shown(key)} cannot be opened: {why}") from None
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise BadRequest(f"{shown(key)} is no shared memory")
    return file
