"""Tensors in POSIX shared memory: regions that clients register, and parts of them.

Neither inputs nor outputs cross the connection. The memory is read and written as a file, never
opened: a client that shrinks it meanwhile gets an error, and does not end the process (SIGBUS). The
copy also keeps a client from changing indices after kernels have checked them.
"""

from __future__ import annotations

import os
import stat
import threading
from typing import Any, Final

import numpy as np

from tenonnx_serve.errors import BadRequest, Forbidden, Missing
from tenonnx_serve.region_files import OwnRegions, Region, Registered, SharedRegions
from tenonnx_serve.requests import Array, Parameters, quoted
from tenonnx_serve.settings import Limits

FOLDER: Final = "/dev/shm"
# The most registered regions: each takes an open file.
MAX_REGIONS: Final = 1024

# The longest name of a region: it becomes a file's name, in hexadecimal.
MAX_NAME_CHARACTERS: Final = 100

REGION, OFFSET, SIZE = "shared_memory_region", "shared_memory_offset", "shared_memory_byte_size"


class Opened:
    """A region's memory, open in this process.

    Args:
        region: The region.

    Raises:
        BadRequest: The memory does not exist, or is smaller.
    """

    def __init__(self, region: Region) -> None:
        self.region = region
        self._file = _opened(region.key)
        if not region.byte_size or self._size() < region.offset + region.byte_size:
            raise BadRequest(
                f"shared memory {quoted(region.key)} does not have {region.byte_size} bytes at "
                f"{region.offset}"
            )

    def _size(self) -> int:
        return os.fstat(self._file).st_size

    def read(self, offset: int, size: int) -> Array:
        """Return a copy of some of its bytes.

        Raises:
            BadRequest: They exceed the region, or the memory is smaller by now.
        """
        place = self._place(offset, size)
        found, count = np.empty(size, np.uint8), 0
        while count < size:
            read = os.preadv(self._file, [found[count:].data], place + count)
            if not read:
                raise self._truncated()
            count += read
        return found

    def write(self, offset: int, data: Any) -> None:
        """Write bytes to it.

        Raises:
            BadRequest: They exceed the region, or the memory is smaller by now.
        """
        left = memoryview(data).cast("B")
        place = self._place(offset, len(left))
        while len(left):
            written = os.pwrite(self._file, left, place)
            left, place = left[written:], place + written

    def _place(self, offset: int, size: int) -> int:
        if offset < 0 or size < 0 or offset + size > self.region.byte_size:
            raise BadRequest(
                f"shared memory region {quoted(self.region.name)} has {self.region.byte_size} "
                f"bytes; {size} at {offset} go beyond its end"
            )
        if self._size() < self.region.offset + self.region.byte_size:
            raise self._truncated()
        return self.region.offset + offset

    def _truncated(self) -> BadRequest:
        return BadRequest(f"shared memory region {quoted(self.region.name)} was truncated")

    def __del__(self) -> None:
        # With the last user: a request may read it while another unregisters it.
        if hasattr(self, "_file"):
            os.close(self._file)


class Regions:
    """The regions that clients have registered. Several threads use it.

    Args:
        folder: Where the workers of one server share the list; ``None`` for one process.
        enabled: Clients may register memory.
        most: Bytes of an input at most.
    """

    def __init__(self, folder: str = "", *, enabled: bool = False, most: int = Limits.body) -> None:
        self._enabled, self._most = enabled, most
        self._registered: Registered = SharedRegions(folder) if folder else OwnRegions()
        self._open: dict[str, Opened] = {}
        self._lock = threading.Lock()

    def register(self, name: str, key: Any, offset: Any, byte_size: Any) -> None:
        """Register memory of a client.

        Raises:
            Forbidden: The server's operator has not allowed it.
            BadRequest: The memory does not exist or is smaller, or the name is taken.
        """
        if not self._enabled:
            raise Forbidden("shared memory is off; the server's option --shared-memory allows it")
        for what, given in (("offset", offset), ("byte_size", byte_size)):
            if type(given) is not int or not 0 <= given < 1 << 63:
                raise BadRequest(f"{what} is {quoted(given)}; expected a number of bytes")
        if not 0 < len(name) <= MAX_NAME_CHARACTERS:
            raise BadRequest(
                f"{quoted(name)} is no region's name; expected 1 to {MAX_NAME_CHARACTERS} letters"
            )
        if len(self._registered.names()) >= MAX_REGIONS:
            raise BadRequest(
                f"{MAX_REGIONS} regions of shared memory are registered, which is the limit"
            )
        region = Region(name, key, offset, byte_size)
        opened = Opened(region)
        with self._lock:
            if not self._registered.add(region):
                raise BadRequest(f"shared memory region {quoted(name)} is registered already")
            self._open[name] = opened

    def unregister(self, name: str = "") -> None:
        """Unregister a region, or all of them; do nothing if it is not registered."""
        for one in [name] if name else self._registered.names():
            with self._lock:
                self._registered.remove(one)
                self._open.pop(one, None)

    def status(self, name: str = "") -> list[Region]:
        """Return a region, or all of them.

        Raises:
            Missing: The region is not registered.
        """
        if name:
            return [self._find(name).region]
        found = map(self._registered.get, self._registered.names())
        return [region for region in found if region is not None]

    def _find(self, name: Any) -> Opened:
        with self._lock:
            region = self._registered.get(name) if isinstance(name, str) else None
            opened = self._open.get(name)
            if region is None:
                self._open.pop(name, None)
                raise Missing(f"there is no shared memory region {quoted(name)}")
            if opened is None or opened.region != region:
                opened = self._open[name] = Opened(region)
            return opened

    def close(self) -> None:
        """Close what this process has open; regions stay registered for others."""
        self._open.clear()

    def read(self, parameters: Parameters) -> memoryview | None:
        """Return an input's bytes, if its parameters name a region.

        Raises:
            ServeError: The region does not exist, or is too small.
        """
        if (name := parameters.get(REGION)) is None:
            return None
        offset, size = _place(parameters)
        if size > self._most:
            raise BadRequest(f"{SIZE} is {size}; expected at most {self._most}, as of a body")
        return self._find(name).read(offset, size).data

    def write(self, parameters: Parameters, data: Any) -> Parameters | None:
        """Write an output if its parameters name a region; return the answer's parameters.

        Raises:
            ServeError: The region does not exist, or is too small.
        """
        if (name := parameters.get(REGION)) is None:
            return None
        offset, size = _place(parameters)
        if len(data) > size:
            raise BadRequest(f"an output has {len(data)} bytes, but {SIZE} is {size}")
        self._find(name).write(offset, data)
        return {REGION: name, SIZE: len(data), OFFSET: offset}


def _place(parameters: Parameters) -> tuple[int, int]:
    offset, size = parameters.get(OFFSET, 0), parameters.get(SIZE)
    if type(offset) is not int or type(size) is not int:
        raise BadRequest(
            f"{SIZE} is {quoted(size)}, {OFFSET} {quoted(offset)}; expected numbers of bytes"
        )
    return offset, size


def _opened(key: Any) -> int:
    """Open shared memory by name; the name cannot leave the system's folder of it.

    Raises:
        BadRequest: It does not exist, or this user may not map it.
    """
    name = key.removeprefix("/") if isinstance(key, str) else ""
    if not name or "/" in name or "\0" in name or name in (".", "..") or name.startswith("sem."):
        raise BadRequest(f"{quoted(key)} cannot be the name of shared memory")
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        folder = os.open(FOLDER, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            file = os.open(name, flags, dir_fd=folder)
        finally:
            os.close(folder)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "its name"
        raise BadRequest(f"shared memory {quoted(key)} cannot be opened: {why}") from None
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise BadRequest(f"{quoted(key)} is not shared memory")
    return file
