"""Memory between pages that nothing may touch."""

from __future__ import annotations

import ctypes
import mmap
import weakref
from typing import Any, TypeAlias

import numpy as np

NDArray: TypeAlias = np.ndarray[Any, Any]

# Bytes that are not mapped on either side: a step of one row too many ends in them, too.
UNMAPPED_BYTES = 1 << 20

_NOTHING, _ALL = 0, mmap.PROT_READ | mmap.PROT_WRITE
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


class Block:
    """So many bytes, of which the last lies before a page that is not mapped, or the first behind.

    Args:
        nbytes: How many.
        before: Whether they begin behind such a page, and not end before one.
        alignment: Of the first byte; the last is as near to the page as that allows.

    Attributes:
        address: Where they begin.
    """

    def __init__(self, nbytes: int, *, before: bool, alignment: int = 1) -> None:
        inner = -(-max(nbytes, 1) // mmap.PAGESIZE) * mmap.PAGESIZE
        self._length = inner + 2 * UNMAPPED_BYTES
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        start = _libc.mmap(None, self._length, _NOTHING, flags, -1, 0)
        if start in (None, ctypes.c_void_p(-1).value):
            raise MemoryError(f"no {self._length} bytes of addresses")
        self._start: int = start
        if _libc.mprotect(start + UNMAPPED_BYTES, inner, _ALL):
            raise MemoryError("no memory")
        room = 0 if before else inner - nbytes
        self.address: int = start + UNMAPPED_BYTES + room - room % alignment

    def release(self) -> None:
        """Give the memory back; what still lies in it must not be touched again."""
        _libc.munmap(self._start, self._length)


def guarded_bytes(nbytes: int, *, before: bool, alignment: int = 1) -> NDArray:
    """Return such bytes, which are given back with the last array that lies in them."""
    block = Block(nbytes, before=before, alignment=alignment)
    memory = (ctypes.c_uint8 * nbytes).from_address(block.address)
    weakref.finalize(memory, block.release)
    return np.frombuffer(memoryview(memory), np.uint8)


def guarded_copy(array: NDArray, *, before: bool) -> NDArray:
    """Return a copy of an array in such memory, with its strides, and aligned if it is."""
    if array.dtype.hasobject:
        return array
    array = np.asarray(array)  # a scalar of numpy's has another address whenever it is asked
    (low, high), first = span(array), array.__array_interface__["data"][0]
    if not array.size:
        low, high = first, first
    odd = 0 if array.flags.aligned else 1
    raw = guarded_bytes(high - low + odd, before=before)
    skipped = odd if before else 0
    ctypes.memmove(raw.ctypes.data + skipped, low, high - low)
    return np.ndarray(array.shape, array.dtype, raw, skipped + first - low, array.strides)


def span(array: NDArray) -> tuple[int, int]:
    """Return the address of an array's first byte in memory and of the one after the last."""
    low = high = array.__array_interface__["data"][0]
    for length, step in zip(array.shape, array.strides, strict=True):
        if step < 0:
            low += (length - 1) * step
        else:
            high += (length - 1) * step
    return low, high + array.itemsize
