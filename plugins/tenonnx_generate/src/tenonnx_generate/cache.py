"""Memory for keys and values that grows in place, on the host or a device."""

from __future__ import annotations

import contextlib
import math
import mmap
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from tenonnx import HOST, Device, RuntimeException
from tenonnx.planning.device_arrays import exposes_arrays

NDArray = np.ndarray[Any, np.dtype[Any]]

# Linux's ``MAP_NORESERVE``, which Python names from 3.13 on.
NO_RESERVE = 0x4000


def reserve(shape: Sequence[int], dtype: np.dtype[Any], device: Device = HOST) -> Any:
    """Return zeros, an array of a device; those of the host take memory as they are written.

    A cache lies there at its greatest length from the beginning: what a sequence never reaches
    are addresses and nothing else. A device's memory is taken at once.

    Raises:
        RuntimeException: There is not as much memory, or not as many addresses.
    """
    count = math.prod(shape)
    try:
        if exposes_arrays(device):
            made = device.upload(np.zeros(tuple(shape), dtype))
            device.synchronize()  # sessions of other streams read it, too
            return made
        if sys.platform != "linux" or not count:
            return np.zeros(tuple(shape), dtype)
        kind = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NO_RESERVE
        pages = mmap.mmap(-1, count * dtype.itemsize, flags=kind)
    except (MemoryError, OSError, OverflowError, ValueError) as error:
        raise RuntimeException(
            f"there is no room for a cache of {list(shape)} {dtype}",
            hint="ask for a smaller max_length or batch_size",
        ) from error
    with contextlib.suppress(OSError):  # a kernel without huge pages
        # One of 2 MiB would come whole with its first token.
        pages.madvise(mmap.MADV_NOHUGEPAGE)
    return np.frombuffer(pages, dtype).reshape(tuple(shape))


def write(device: Device, target: Any, source: Any) -> None:
    """Overwrite a part of a cache with another one that it has nothing in common with."""
    if exposes_arrays(device):
        device.write(target, source)
    else:
        target[...] = source


def give_back(reserved: Any, row: int) -> None:
    """Give the host's whole pages of a row of what ``reserve`` returned back; then zeros."""
    base: Any = reserved
    while isinstance(base, np.ndarray) and base.base is not None:
        base = base.base
    pages = base.obj if isinstance(base, memoryview) else base
    if not isinstance(pages, mmap.mmap):
        return
    size = reserved[row].nbytes
    start = -(-row * size // mmap.PAGESIZE) * mmap.PAGESIZE
    stop = (row + 1) * size // mmap.PAGESIZE * mmap.PAGESIZE
    if stop > start:
        pages.madvise(mmap.MADV_DONTNEED, start, stop - start)
