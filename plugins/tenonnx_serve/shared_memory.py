"""Tensors in POSIX shared memory: regions that clients register, and parts of them.

Neither inputs nor outputs cross the connection. Inputs are read in place. Integers of 32 and 64
bits are copied first: kernels check indices before they use them, and the client could change them
in between. Outputs are copied to their place after the run, not bound to it, for the same reason:
other nodes of the model may read an output. If a client truncates a region during its use, the
process that reads it dies; the region's size is checked before each use.
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
"""The most registered regions: each takes an open file."""

LONGEST: Final = 100
"""The longest name of a region: it becomes a file's name, in hexadecimal."""

INDICES: Final = frozenset({"INT32", "INT64"})
"""Datatypes that may hold indices."""

REGION, OFFSET, SIZE = "shared_memory_region", "shared_memory_offset", "shared_memory_byte_size"


class Mapped:
    """A region's memory in this process.

    Args:
        region: The region.

    Raises:
        BadRequest: The memory does not exist, or is smaller.
    """

    def __init__(self, region: Region) -> None:
        self.region = region
        self._file = _opened(region.key)
        try:
            page = region.offset % mmap.ALLOCATIONGRANULARITY
            if not region.byte_size or self._size() < region.offset + region.byte_size:
                raise BadRequest(
                    f"shared memory {shown(region.key)} does not have {region.byte_size} bytes at "
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
        """Returns a view of some of its bytes.

        Raises:
            BadRequest: They exceed the region, or the memory is smaller by now.
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
        """Closes the file; the mapping ends with the last array in it."""
        os.close(self._file)


class Regions:
    """The regions that clients have registered. Several threads use it.

    Args:
        folder: Where the workers of one server share the list; ``None`` for one process.
    """

    def __init__(self, folder: str = "") -> None:
        self._registered: Registered = SharedRegions(folder) if folder else OwnRegions()
        self._mapped: dict[str, Mapped] = {}
        self._lock = threading.Lock()

    def register(self, name: str, key: Any, offset: Any, byte_size: Any) -> None:
        """Registers memory of a client.

        Raises:
            BadRequest: The memory does not exist or is smaller, or the name is taken.
        """
        for what, given in (("offset", offset), ("byte_size", byte_size)):
            if type(given) is not int or not 0 <= given < 1 << 63:
                raise BadRequest(f"{what} is {shown(given)}; expected a number of bytes")
        if not 0 < len(name) <= LONGEST:
            raise BadRequest(f"{shown(name)} is no region's name; expected 1 to {LONGEST} letters")
        if len(self._registered.names()) >= MOST:
            raise BadRequest(f"{MOST} regions of shared memory are registered, which is the limit")
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
        """Unregisters a region, or all of them; does nothing if it is not registered."""
        for one in [name] if name else self._registered.names():
            with self._lock:
                self._registered.remove(one)
                self._keep(one, None)

    def status(self, name: str = "") -> list[Region]:
        """Returns a region, or all of them.

        Raises:
            Missing: The region is not registered.
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
        """Closes what this process has open; regions stay registered for others."""
        for name in list(self._mapped):
            self._keep(name, None)

    def read(self, parameters: Parameters, datatype: str) -> memoryview | None:
        """Returns an input's bytes, if its parameters name a region.

        Raises:
            ServeError: The region does not exist, or is too small.
        """
        if (name := parameters.get(REGION)) is None:
            return None
        offset, size = _place(parameters)
        part = self._find(name).part(offset, size)
        return (part.copy() if datatype in INDICES else part).data

    def write(self, parameters: Parameters, data: Any) -> Parameters | None:
        """Writes an output if its parameters name a region; returns the answer's parameters.

        Raises:
            ServeError: The region does not exist, or is too small.
        """
        if (name := parameters.get(REGION)) is None:
            return None
        offset, size = _place(parameters)
        if len(data) > size:
            raise BadRequest(f"an output has {len(data)} bytes, but {SIZE} is {size}")
        part = self._find(name).part(offset, len(data))
        part[:] = np.frombuffer(data, np.uint8)
        return {REGION: name, SIZE: len(data), OFFSET: offset}


def _place(parameters: Parameters) -> tuple[int, int]:
    offset, size = parameters.get(OFFSET, 0), parameters.get(SIZE)
    if type(offset) is not int or type(size) is not int:
        raise BadRequest(
            f"{SIZE} is {shown(size)}, {OFFSET} {shown(offset)}; expected numbers of bytes"
        )
    return offset, size


def _opened(key: Any) -> int:
    """Opens shared memory by name; the name cannot leave the system's folder of it.

    Raises:
        BadRequest: It does not exist, or this user may not map it.
    """
    name = key.removeprefix("/") if isinstance(key, str) else ""
    if not name or "/" in name or "\0" in name or name in (".", "..") or name.startswith("sem."):
        raise BadRequest(f"{shown(key)} cannot be the name of shared memory")
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
        raise BadRequest(f"{shown(key)} is not shared memory")
    return file
