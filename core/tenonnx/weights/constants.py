"""Small weights, many at once: their bytes lie together, not each in a memory of its own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from tenonnx.weights.storage import Element, Memory, as_bytes, by_content, name_of, padded

if TYPE_CHECKING:
    from tenonnx.weights.registry import WeightRegistry
    from tenonnx.weights.weight import Weight

# The content of a weight, its element type and its shape.
Constant: TypeAlias = tuple[bytes, Element, tuple[int, ...]]

# Bytes of constants that lie together: not more, as they stay for as long as one weight among
# them is used.
MAX_JOINED_BYTES: Final = 64 << 10


def constants(registry: WeightRegistry, given: Sequence[Constant]) -> list[Weight]:
    """Return a weight for each of many small contents, the one that ``constant`` would return.

    Args:
        registry: Has the weights.
        given: Contents, each of as many bytes as a tensor of its type and shape takes.
    """
    keys = [f"{by_content(part)}+0:{name_of(kind)}{list(sizes)}" for part, kind, sizes in given]
    known = dict(zip(keys, map(registry._weights.get, keys), strict=True))
    new = dict.fromkeys(part for key, (part, *_) in zip(keys, given, strict=True) if not known[key])
    places = {}
    for piece in _pieces(new):
        whole = b"".join(room for _, room in piece)
        memory = Memory(as_bytes(memoryview(whole)), "private", by_content(whole))
        storage, offset = registry._share(memory.key, memory), 0
        for part, room in piece:
            places[part] = storage, offset
            offset += len(room)
    return [
        known[key] or registry._named(key, *places[part], kind, sizes, None)
        for key, (part, kind, sizes) in zip(keys, given, strict=True)
    ]


def _pieces(contents: Iterable[bytes]) -> Iterator[list[tuple[bytes, bytes]]]:
    """Yield contents that lie together, each with what it takes there."""
    piece: list[tuple[bytes, bytes]] = []
    size = 0
    for content in contents:
        room = padded(content)
        if piece and size + len(room) > MAX_JOINED_BYTES:
            yield piece
            piece, size = [], 0
        piece.append((content, room))
        size += len(room)
    if piece:
        yield piece
