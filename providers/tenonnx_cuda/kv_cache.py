"""Caches that grow in place: memory with room for more steps than have been there so far.

A decoder is given its keys and values in every run, and returns them with a step more. What it
returns is the first part of a larger array; when that comes back, what is new is written behind it.
Nothing that was handed out is overwritten: who goes on from a cache that was gone on from already
gets memory of its own.
"""

from __future__ import annotations

import math
import threading
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tenonnx.operators import Array
from tenonnx_cuda.capture.tracer import DynamicNumber, cannot_capture, claim
from tenonnx_cuda.platform import Platform, View
from tenonnx_cuda.sources import THREADS_PER_BLOCK, blocks, kernel

if TYPE_CHECKING:
    import onnx_ir as ir

# Steps that a new room has space for at least, besides those that are there.
LEAST_MORE: Final = 128

# The modulus of addresses: a call may depend only on the remainder.
ADDRESS_MODULUS: Final = 256

# Of steps in a room.
ROOM_STEPS_MULTIPLE: Final = 64

# Bytes that a thread may copy at once.
COPY_WIDTHS: Final = (16, 8, 4, 2, 1)

# By address. A room lives as long as an array that was handed out of it.
_rooms: weakref.WeakValueDictionary[int, Room] = weakref.WeakValueDictionary()


class Room:
    """Memory for one cache.

    Args:
        array: All of it.
        axis: Of the steps.
        used: How many of them were handed out.

    Attributes:
        key: All that a call may depend on of it.
    """

    def __init__(self, array: Array, axis: int, used: int) -> None:
        self.array, self.axis = array, axis
        self.key = array.shape, array.dtype, axis, array.data.ptr % ADDRESS_MODULUS
        self._used = used
        self._lock = threading.Lock()

    @property
    def capacity(self) -> int:
        """The number of steps that it has room for."""
        return int(self.array.shape[self.axis])

    def holds(self, array: Array, axis: int) -> bool:
        """Return whether an array that begins where this does is its first part along an axis."""
        whole = self.array
        return (
            axis == self.axis
            and array.dtype == whole.dtype
            and array.shape[:axis] == whole.shape[:axis]
            and array.shape[axis + 1 :] == whole.shape[axis + 1 :]
            and array.strides[axis:] == whole.strides[axis:]
            and (array.strides == whole.strides or math.prod(whole.shape[:axis]) == 1)
        )

    def claim(self, before: int, steps: int) -> bool:
        """Take the place behind so many steps, unless somebody has, or there is none."""
        with self._lock:
            if self._used != before or before + steps > self.capacity:
                return False
            self._used = before + steps
            return True

    def first(self, platform: Platform, steps: int) -> Array:
        """Return its first steps."""
        shape = self.array.shape
        shape = (*shape[: self.axis], steps, *shape[self.axis + 1 :])
        view = View(0, self.array.dtype, shape, self.array.strides)
        return platform.part(self.array, view, hold=self)


def is_cache(node: ir.Node | None) -> bool:
    """Return whether a Concat goes on from an input of its graph, in an output of its graph."""
    if node is None or node.op_type != "Concat" or len(node.inputs) != 2:
        return False
    past, present = node.inputs[0], node.outputs[0]
    return past is not None and past.is_graph_input() and present.is_graph_output()


def room_of(array: Any, axis: int) -> Room | None:
    """Return the room whose first part an array is, if there is one."""
    room = _rooms.get(array.data.ptr)
    return room if room is not None and room.holds(array, axis % array.ndim) else None


def longer(platform: Platform, pasts: Sequence[Array], axis: int, steps: int) -> list[Array]:
    """Return caches that go on from others by so many steps, which are still to be written.

    Args:
        platform: The device.
        pasts: As long as each other; they get as much room, too.
        axis: Of their steps.
        steps: How many more.
    """
    before = int(pasts[0].shape[axis])
    rooms = [room_of(past, axis) for past in pasts]
    if len({room and room.capacity for room in rooms}) == 1 and all(
        room is not None and room.claim(before, steps) for room in rooms
    ):
        for past in pasts:
            claim(past, axis, steps)
        return [room.first(platform, before + steps) for room in rooms if room is not None]
    cannot_capture()
    space = before + steps + max(LEAST_MORE, before // 4)
    found = []
    for past in pasts:
        shape = (
            *past.shape[:axis],
            -(-space // ROOM_STEPS_MULTIPLE) * ROOM_STEPS_MULTIPLE,
            *past.shape[axis + 1 :],
        )
        whole = platform.xp.empty(shape, past.dtype)
        whole[...] = 0  # which is what shorter sequences of a batch end in
        room = _rooms[whole.data.ptr] = Room(whole, axis, before + steps)
        found.append(room.first(platform, before + steps))
        write(platform, found[-1], past, 0, axis)
    return found


def write(platform: Platform, cache: Array, part: Array, before: int, axis: int) -> None:
    """Write a part of a cache into its room, behind so many steps."""
    room = room_of(cache, axis)
    assert room is not None, "it was made in one"
    inner = math.prod(part.shape[axis + 1 :]) * part.dtype.itemsize
    laid = platform.xp.ascontiguousarray(part)
    width = next(n for n in COPY_WIDTHS if inner % n == 0 and laid.data.ptr % n == 0)
    step, count = inner // width, laid.nbytes // width
    sizes = map(np.int64, (count, part.shape[axis] * step, room.capacity * step))
    start = DynamicNumber(np.int64(before * step), step)
    launch = kernel(platform, "kv_cache", "extend", WIDTH=width)
    launch(blocks(count), (THREADS_PER_BLOCK,), (laid, cache, *sizes, start))
