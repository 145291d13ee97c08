"""The memory of arrays: another one in each run, or the same in all."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np

from tenonnx_cpu.capture.launch import is_fixed

NDArray: TypeAlias = np.ndarray[Any, Any]

# The offset of the address of an array's first element (`PyArrayObject_fields`).
DATA = object.__basicsize__

word_at = ctypes.c_ssize_t.from_address


class NotCapturable(Exception):
    """A launch with an argument or result that has no known place in every run."""


# Memory of an array that is another one in each run: the addresses of its first byte, after its
# last, and of the one that offsets count from; `FROM_INPUT` or `FROM_OUTPUT`; which input or store.
Extent: TypeAlias = tuple[int, int, int, int, int]


UNFIT: Any = object()


def form_of(x: Any) -> Any:
    """Return an array's dtype, shape and strides; the array itself if it never changes."""
    if x is None or is_fixed(x):
        return x
    return (x.dtype, x.shape, x.strides) if is_known(x) else UNFIT


def is_known(x: Any) -> bool:
    """Return whether machine code takes a value that differs from run to run."""
    if x is None:
        return True
    return type(x) is np.ndarray and x.flags.aligned and not x.dtype.hasobject


def extent(array: NDArray) -> tuple[int, int, int]:
    """Return the addresses of an array's first byte, after its last, and of its first element."""
    low = high = address = word_at(id(array) + DATA).value
    if array.flags.c_contiguous:
        return low, low + array.nbytes, low
    for length, step in zip(array.shape, array.strides, strict=True):
        if step < 0:
            low += (length - 1) * step
        else:
            high += (length - 1) * step
    return low, high + array.itemsize, address


def is_frozen(array: Any) -> bool:
    """Return whether nobody writes to an array's memory, as to weights and to plans of shapes."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return not array.flags.writeable


def without_constants(
    inputs: Sequence[Any], same: Sequence[bool] = (), constants: Iterable[Any] = ()
) -> tuple[Any, ...]:
    """Return a run's inputs, with copies in place of those that may be a constant's memory.

    A constant may come as an input, too: a Loop starts with one, or a branch returns one. An
    argument that lies in both would be taken for the input, which is another array in the next run.

    Args:
        inputs: The arrays.
        same: Which of them are constants; by default none.
        constants: Others that the run's steps read.
    """
    known = [*itertools.compress(inputs, same), *constants]
    own = [extent(x)[:2] for x in known if type(x) is np.ndarray and x.size]
    flags = itertools.chain(same, itertools.repeat(False))
    return tuple(
        _copied(x) if not constant and _may_be_of(x, own) else x
        for x, constant in zip(inputs, flags, strict=False)
    )


def _may_be_of(x: Any, constants: Sequence[tuple[int, int]]) -> bool:
    if type(form_of(x)) is not tuple or not x.size:
        return False
    low, high, _ = extent(x)
    return is_frozen(x) or any(low < end and start < high for start, end in constants)


def unwritten(x: NDArray) -> NDArray:
    """Return an array of the same dtype, shape and strides, with anything in it."""
    low, high, address = extent(x)
    room = np.empty(high - low, np.uint8)
    return np.ndarray(x.shape, x.dtype, room, address - low, x.strides)


def _copied(x: NDArray) -> NDArray:
    """Return a copy that has the same strides."""
    copy = unwritten(x)
    copy[...] = x
    return copy


def same_of(array: NDArray) -> tuple[Any, ...]:
    """Return what an array has in common with others that see the same memory alike."""
    address = word_at(id(array) + DATA).value if array.size else 0
    return address, array.shape, array.strides, array.dtype
