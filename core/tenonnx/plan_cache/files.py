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

MAGIC = b"tenonnx\x02"
# Magic, digest of what follows, bytes of the checks, of the parts, and how many arrays.
PLAN_HEADER = struct.Struct(f"<8s{2 * DIGEST_BYTES}sQQQ")
LENGTH = struct.Struct("<Q")
ARRAY_ALIGNMENT_BYTES = 64

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
    magic, told, checks, parts, count = PLAN_HEADER.unpack_from(whole)
    if magic != MAGIC or told != digest(whole[len(MAGIC) + 2 * DIGEST_BYTES :]).encode():
        raise ValueError("its digest is another one")
    lengths = [
        LENGTH.unpack_from(whole, PLAN_HEADER.size + LENGTH.size * n)[0] for n in range(count)
    ]
    start = PLAN_HEADER.size + LENGTH.size * count
    middle = start + checks
    place, apart = middle + parts, list[memoryview]()
    for length in lengths:
        place += -place % ARRAY_ALIGNMENT_BYTES
        apart.append(whole[place : place + length])
        place += length
    return File(whole[start:middle], whole[middle : middle + parts], apart, mapping)


def write(
    path: str | os.PathLike[str], checks: bytes, parts: bytes, apart: Iterable[memoryview]
) -> None:
    """Write a plan's file, at once or not at all, and make room for it.

    Raises:
        OSError: It cannot be written.
    """
    content = pieces(checks, parts, list(apart))
    room = cache_room()
    if room is None or not room.take(sum(map(len, content))):
        raise OSError(errno.EDQUOT, "the cache has no room for it")
    write_trusted(path, *content)


def pieces(checks: bytes, parts: bytes, apart: Sequence[memoryview]) -> list[bytes | memoryview]:
    """Return the content of a plan's file; large arrays are not copied."""
    found: list[bytes | memoryview] = [LENGTH.pack(each.nbytes) for each in apart]
    found += [checks, parts]
    place = PLAN_HEADER.size + sum(map(len, found))
    for each in apart:
        found += [bytes(-place % ARRAY_ALIGNMENT_BYTES), each]
        place += -place % ARRAY_ALIGNMENT_BYTES + each.nbytes
    head = PLAN_HEADER.pack(MAGIC, b"", len(checks), len(parts), len(apart))
    found.insert(0, head[len(MAGIC) + 2 * DIGEST_BYTES :])
    return [MAGIC, digest(*found).encode(), *found]


def files(patterns: Sequence[str] = PLANS[:1]) -> list[Path]:
    """Return the files of plans that are kept, or others beside them."""
    found = folder()
    if found is None or not is_trusted(found):
        return []
    from pathlib import Path  # few processes list them

    return [path for each in patterns for path in Path(found).glob(each)]
