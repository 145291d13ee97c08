"""The files of plans: a header with a digest of the rest, pickles, and arrays beside them."""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from tenonnx.weights.digest import DIGEST_BYTES, digest
from tenonnx.weights.folder import PLANS, cache_room, cache_root, note_use
from tenonnx.weights.mapping import Mapping
from tenonnx.weights.trusted import is_trusted, open_trusted, write_trusted

if TYPE_CHECKING:
    from pathlib import Path

MAGIC = b"tenonnx\x03"
# Magic, digest of what follows, and how many pieces.
PLAN_HEADER = struct.Struct(f"<8s{2 * DIGEST_BYTES}sQ")
LENGTH = struct.Struct("<Q")
PIECE_ALIGNMENT_BYTES = 64

SUFFIX, CAPTURES = ".plan", ".captures"


class File(NamedTuple):
    """The content of a plan's file.

    Attributes:
        checks: A pickle of what has to be as it was.
        parts: A pickle of the plan's parts.
        apart: The arrays beside it.
        mapping: The pages that all of it lies in.
    """

    checks: memoryview
    parts: memoryview
    apart: list[memoryview]
    mapping: Mapping


def folder() -> str | None:
    """Return the folder of plans; ``None`` if nothing is to be kept."""
    return None if os.environ.get("TENONNX_CACHE") == "0" else os.path.join(cache_root(), "plans")


def path_of(key: str) -> str:
    """Return where the plan of a key is or is to be."""
    return os.path.join(cache_root(), "plans", f"{key[:48]}{SUFFIX}")


def read(path: str | os.PathLike[str]) -> File:
    """Map a plan's file.

    Raises:
        OSError: It is not there, or not trusted.
        ValueError: It is damaged.
    """
    file = content_of(Mapping(path, kind="derived", opening=open_trusted))
    note_use(path, file.mapping.identity.mtime_ns)
    return file


def content_of(mapping: Mapping, begin: int = 0) -> File:
    """Return the content of a plan that ends with a file.

    Args:
        mapping: The file.
        begin: Where the plan begins.

    Raises:
        ValueError: It is damaged.
    """
    whole = mapping.buffer[begin:]
    if len(whole) < PLAN_HEADER.size:
        raise ValueError("it is shorter than its header")
    magic, told, count = PLAN_HEADER.unpack_from(whole)
    if magic != MAGIC:
        raise ValueError("it is no plan, or one of another version")
    if told != digest(whole[len(MAGIC) + 2 * DIGEST_BYTES :]).encode():
        raise ValueError("its digest is another one")
    place, found = PLAN_HEADER.size + LENGTH.size * count, list[memoryview]()
    for number in range(count):
        (length,) = LENGTH.unpack_from(whole, PLAN_HEADER.size + LENGTH.size * number)
        place += -place % PIECE_ALIGNMENT_BYTES
        found.append(whole[place : place + length])
        place += length
    checks, parts, *apart = found
    return File(checks, parts, apart, mapping)


def write(
    path: str | os.PathLike[str], checks: bytes, parts: bytes, apart: Iterable[memoryview]
) -> None:
    """Write a plan's file, at once or not at all, and make room for it.

    Raises:
        OSError: It cannot be written.
    """
    content = pieces(checks, parts, apart)
    room = cache_room()
    if room is None or not room.take(sum(map(len, content))):
        raise OSError(errno.EDQUOT, "the cache has no room for it")
    write_trusted(path, *content)


def pieces(checks: bytes, parts: bytes, apart: Iterable[memoryview]) -> list[bytes | memoryview]:
    """Return the content of a plan's file; large arrays are not copied."""
    given: list[bytes | memoryview] = [checks, parts, *apart]
    found: list[bytes | memoryview] = [LENGTH.pack(n) for n in (len(given), *map(len, given))]
    place = PLAN_HEADER.size + LENGTH.size * len(given)
    for each in given:
        found += [bytes(-place % PIECE_ALIGNMENT_BYTES), each]
        place += -place % PIECE_ALIGNMENT_BYTES + len(each)
    return [MAGIC, digest(*found).encode(), *found]


def files(patterns: Sequence[str] = PLANS[:1]) -> list[Path]:
    """Return the files of plans that are kept, or others beside them."""
    found = folder()
    if found is None or not is_trusted(found):
        return []
    from pathlib import Path

    return [path for each in patterns for path in Path(found).glob(each)]
