"""Contents of weights on their way to a side file or to memory."""

from __future__ import annotations

import functools
import mmap
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from tenonnx.weights.mapping import Mapping
from tenonnx.weights.storage import byte_size, elements_in

if TYPE_CHECKING:
    from tenonnx.weights.storage import Element, NDArray, Storage

# Bytes of a weight from which on its pages need not stay resident once they are copied.
LEAST_FORGOTTEN_BYTES = 64 * 1024

# Bytes that are copied at a time: what reads a block again finds it in the processor's cache.
BLOCK_BYTES = 1024 * 1024


class Blocks:
    """The bytes of an array, block by block.

    Pages of a file that they are read from need not stay resident.

    Args:
        array: The array, whose elements are adjacent.
        storage: Where it lies, if in a storage.
        offset: Where it begins there, in bytes.
    """

    def __init__(self, array: NDArray, storage: Storage | None = None, offset: int = 0) -> None:
        self.content = array.reshape(-1).view(np.uint8)
        self.storage, self.offset = storage, offset

    def __iter__(self) -> Iterator[NDArray]:
        """Yield the blocks; each is forgotten when the next one is asked for."""
        size = self.content.size
        file = self.storage if isinstance(self.storage, Mapping) else None
        if size < LEAST_FORGOTTEN_BYTES:
            file = None
        for start in range(0, size, BLOCK_BYTES):
            stop = min(start + BLOCK_BYTES, size)
            if file:
                file.fetch(self.offset + start, self.offset + stop)
            yield self.content[start:stop]
            if file:
                # The page that a block ends in is forgotten with the next one.
                before = mmap.PAGESIZE if start else 0
                file.forget(self.offset + start - before, self.offset + stop)

    def copy_into(self, target: NDArray) -> None:
        """Copy them into an array of as many bytes."""
        for start, block in zip(range(0, target.size, BLOCK_BYTES), self, strict=True):
            target[start : start + block.size] = block


# A weight's bytes; or a function that writes its elements into the array that it is given.
Content: TypeAlias = "Blocks | Callable[[NDArray], object]"


def content_of(array: NDArray, storage: Storage | None = None, offset: int = 0) -> Content:
    """Return an array's elements; its place in a storage is as for ``Blocks``."""
    if array.flags.c_contiguous:
        return Blocks(array, storage, offset)
    return functools.partial(np.copyto, src=array)


def in_memory(content: Content, dtype: Element, shape: Sequence[int]) -> NDArray:
    """Return bytes in private memory that have a content."""
    array = np.empty(byte_size(dtype, shape), np.uint8)
    if isinstance(content, Blocks):
        content.copy_into(array)
    else:
        content(elements_in(array, dtype, shape))
    return array
