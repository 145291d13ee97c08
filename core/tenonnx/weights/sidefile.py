"""Derived weights on disk, so that they are built once per machine rather than per process.

A side file is a page of header and the bytes of one weight. It appears under its name, which
tells what is in it, only when it is complete. Nothing is flushed to the disk: after a crash of
the machine the checksum tells what is whole.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import mmap
import os
import struct
import zlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tenonnx.process.distributions import release
from tenonnx.weights.digest import digest
from tenonnx.weights.folder import WEIGHTS, Room, cache_room, note_use
from tenonnx.weights.mapping import Blocks, Content, Identity, Mapping
from tenonnx.weights.storage import (
    Element,
    NDArray,
    byte_size,
    element,
    elements_in,
    name_of,
)
from tenonnx.weights.trusted import (
    POSIX,
    Untrusted,
    is_trusted,
    make_folder,
    open_trusted,
    warn_once,
)

if TYPE_CHECKING:
    from pathlib import Path

log = logging.getLogger(__name__)

SIDE_FILE_VERSION = "side file 2"
MAGIC = b"tenonnx\x01"
# The magic, the checksum of the payload, and the CRC and length of the text.
SIDE_FILE_HEADER = struct.Struct("<8sQII")
# A page, so that the payload begins at a page of the mapping.
HEADER_BYTES = 4096


class SideFile(NamedTuple):
    """A derived weight, mapped."""

    mapping: Mapping
    dtype: Element
    shape: tuple[int, ...]


class SideFiles:
    """A folder of side files, which make room for one another.

    Any error of the disk is a miss for callers, and one warning in the log.

    Args:
        folder: Where; ``None`` keeps nothing, and so does Windows, where files that are in use
            can be neither renamed nor deleted.
        limit: Bytes they may take together, as ``Room`` has it.
        room: A limit that they share with other files, instead of their own.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str] | None,
        limit: int | None = None,
        room: Room | None = None,
    ) -> None:
        self.folder = os.fspath(folder) if folder is not None and POSIX else None
        self.room = room or Room(self.folder or os.curdir, [WEIGHTS], limit)
        self._checked: set[Identity] = set()
        self._swept = False

    @classmethod
    def from_environment(cls) -> SideFiles:
        """Return those that ``TENONNX_CACHE``, ``TENONNX_CACHE_DIR`` and ``_SIZE`` define."""
        room = cache_room()
        return cls(None) if room is None else cls(os.path.join(room.folder, "weights"), room=room)

    def find(self, key: str, name: str) -> SideFile | None:
        """Map the weight of a key; ``None`` if there is none, or it is damaged or not trusted.

        Args:
            key: The derived weight's key.
            name: The key the mapping gets.
        """
        return None if self.folder is None else self._found(self._path(key), key, name)

    def again(self, file: str, name: str, state: tuple[str, Identity]) -> Mapping | None:
        """Map a side file that another process mapped; ``None`` as ``find`` returns it.

        It is not read if it is as that process found it, and the system has run since: nothing
        but a crash of that leaves a file other than it was written.

        Args:
            file: Its name in the folder.
            name: The key the mapping gets.
            state: The result of ``state_of`` for the other process's mapping.
        """
        if self.folder is None or os.path.basename(file) != file:
            return None
        boot, identity = state
        if boot and boot == running_system():
            self._checked.add(Identity(*identity))
        found = self._found(os.path.join(self.folder, file), None, name)
        return None if found is None else found.mapping

    def _found(self, path: str, key: str | None, name: str) -> SideFile | None:
        try:
            mapping = Mapping(
                path, kind="derived", key=name, skip=HEADER_BYTES, opening=open_trusted
            )
            found = self._read(mapping, key)
        except OSError:  # a folder of another user may not even be searched
            return None
        except (ValueError, KeyError, TypeError) as error:
            log.info("%s is damaged and will be rebuilt: %s", path, error)
            with contextlib.suppress(OSError):
                os.unlink(path)
            return None
        self.room.own.add(path)
        note_use(path, mapping.identity.mtime_ns)
        return found

    def write(
        self,
        key: str,
        name: str,
        dtype: Element,
        shape: Sequence[int],
        content: Content,
    ) -> SideFile | None:
        """Write the weight of a key and map it; ``None`` if it cannot be kept here.

        Args:
            key: The derived weight's key.
            name: The key the mapping gets.
            dtype: The ONNX element type.
            shape: The logical shape.
            content: Its elements. A function writes them into the file's pages.
        """
        if self.folder is None:
            return None
        from pathlib import Path

        from tenonnx.weights import draft

        folder, path = Path(self.folder), Path(self._path(key))
        size = HEADER_BYTES + byte_size(dtype, shape)
        try:
            make_folder(folder)
            if not self._swept:
                self._swept = True
                draft.sweep_drafts(folder)
            if not self.room.take(size):
                return None
            with draft.locked_draft(path.with_suffix(".draft")) as descriptor:
                if descriptor is None:
                    return None
                # Another process may have finished it while this one waited for the lock.
                if (found := self.find(key, name)) is None:
                    draft.allocate(descriptor, size)
                    if isinstance(content, Blocks):
                        checksum = _copy(descriptor, content)
                    else:
                        checksum = _fill(descriptor, dtype, shape, content)
                    os.pwrite(descriptor, _header(key, dtype, shape, checksum), 0)
                    # Renamed only now: under its name a file is whole.
                    path.with_suffix(".draft").rename(path)
                    self._checked.add(Identity.of(os.fstat(descriptor)))
                    found = self.find(key, name)
                return found
        except Untrusted:
            return None
        except OSError as error:
            self._warn(error)
            return None

    def clear(self) -> None:
        """Delete every side file; what is mapped stays so."""
        for path in self.files():
            path.unlink(missing_ok=True)

    def _path(self, key: str) -> str:
        # Another version of tenonnx may compute the same thing otherwise.
        assert self.folder is not None
        return os.path.join(
            self.folder, f"{digest(f'{SIDE_FILE_VERSION} {release()} {key}')}.weight"
        )

    def files(self) -> list[Path]:
        """Return the side files that there are."""
        if self.folder is None or not is_trusted(self.folder):
            return []
        from pathlib import Path

        return list(Path(self.folder).glob(WEIGHTS))

    def _read(self, mapping: Mapping, key: str | None) -> SideFile:
        """Return what a mapped side file holds; ValueError, KeyError or TypeError if damaged."""
        magic, checksum, crc, length = SIDE_FILE_HEADER.unpack_from(mapping.pages)
        text = mapping.pages[
            SIDE_FILE_HEADER.size : min(SIDE_FILE_HEADER.size + length, HEADER_BYTES)
        ]
        if magic != MAGIC or zlib.crc32(text) != crc:
            raise ValueError("its header is not one")
        numbers, _, named = text.partition(b"\n")
        if key is not None and named != _shortened(key):
            raise ValueError("it is of another weight")
        number, *shape = map(int, numbers.split())
        dtype = element(number)
        if min(shape, default=0) < 0 or mapping.size != byte_size(dtype, shape):
            raise ValueError(f"it has {mapping.size} bytes for {name_of(dtype)}{shape}")
        if mapping.identity not in self._checked:
            if checksum_of(np.frombuffer(mapping.buffer, np.uint8)) != checksum:
                raise ValueError("its checksum is wrong")
            self._checked.add(mapping.identity)
        return SideFile(mapping, dtype, tuple(shape))

    def _warn(self, error: OSError) -> None:
        assert self.folder is not None
        warn_once(
            self.folder,
            "derived weights stay in private memory, because %s cannot be written: %s. "
            "Set TENONNX_CACHE_DIR to another folder, or TENONNX_CACHE=0 to do without.",
            self.folder,
            error.strerror,
        )


@functools.cache
def running_system() -> str:
    """Return a name that the system has until it is started anew; empty if it has none."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip()
    except OSError:
        return ""


class Checksum:
    """A 64-bit checksum of bytes, at about the speed of memory.

    Args:
        size: How many bytes there are.

    Attributes:
        value: The checksum of those that it was given.
    """

    def __init__(self, size: int) -> None:
        self.value = size

    def add(self, block: NDArray) -> None:
        """Add a block; all but the last one have ``BLOCK_BYTES``."""
        whole = block.size // 8 * 8
        if whole:
            words = block[:whole].view(np.uint64)
            # A sum or an exclusive or alone would miss errors that cancel each other. The
            # multiplication depends on the order of blocks.
            mixed = int(np.add.reduce(words)) ^ int(np.bitwise_xor.reduce(words)) << 1
            self.value = (self.value * 0x9E3779B97F4A7C15 + mixed) & 0xFFFFFFFFFFFFFFFF
        self.value ^= int.from_bytes(block[whole:].tobytes(), "little")


def checksum_of(payload: NDArray) -> int:
    """Return the checksum of bytes."""
    checksum = Checksum(payload.size)
    for block in Blocks(payload):
        checksum.add(block)
    return checksum.value


def _copy(descriptor: int, blocks: Blocks) -> int:
    """Write the bytes of a weight; return their checksum.

    In half the time that writing to a mapping takes, whose pages are made one by one.
    """
    from tenonnx.weights.draft import write_at

    place, checksum = HEADER_BYTES, Checksum(blocks.content.size)
    for block in blocks:
        write_at(descriptor, block, place)
        checksum.add(block)
        place += block.size
    return checksum.value


def _fill(
    descriptor: int,
    dtype: Element,
    shape: Sequence[int],
    fill: Callable[[NDArray], object],
) -> int:
    payload = np.frombuffer(mmap.mmap(descriptor, 0), np.uint8, offset=HEADER_BYTES)
    fill(elements_in(payload, dtype, shape))
    return checksum_of(payload)


def _header(key: str, dtype: Element, shape: Sequence[int], checksum: int) -> bytes:
    numbers = " ".join(map(str, (int(dtype), *shape)))
    text = f"{numbers}\n".encode() + _shortened(key)
    header = SIDE_FILE_HEADER.pack(MAGIC, checksum, zlib.crc32(text), len(text)) + text
    return header.ljust(HEADER_BYTES, b"\0")


def _shortened(key: str) -> bytes:
    return key[:512].encode()
