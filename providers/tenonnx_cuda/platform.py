"""The provider's interface to a GPU, small enough for a stand-in.

Everything that touches cupy implements it in ``cupy_platform``; a platform over the host's memory
lets the rest be tested where there is no device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np

from tenonnx.operators import Array, Namespace

if TYPE_CHECKING:
    from tenonnx_cuda.cudnn.plans import Cudnn

NDArray: TypeAlias = np.ndarray[Any, np.dtype[Any]]

# The number of blocks, or of threads of a block, along each axis.
Grid: TypeAlias = tuple[int, ...]


# Takes blocks, threads of a block and arguments; returns what starts a kernel with them.
#
# That is given the addresses of arrays, which may be others; no two at once. Numpy's scalars among
# the arguments stay as they are; others are numbers of at most eight bytes, which it is given
# likewise, in the arguments' order.
Launcher: TypeAlias = Callable[[Grid, Grid, Sequence[Any]], Callable[..., None]]

# Starts work again that was captured, as a whole; the arrays that it reads and writes are there
# yet.
Graph: TypeAlias = Callable[[], None]


class OutOfDeviceMemoryError(MemoryError):
    """The device, or the session's share of it, has no room; nothing that was there is lost."""


class Block(Protocol):
    """A stretch of a device's memory, given back when nobody holds it."""

    @property
    def nbytes(self) -> int:
        """Its length."""


class Event(Protocol):
    """A point in the order of a stream's work."""

    def synchronize(self) -> None:
        """Wait until all before it is done."""


class Stream(Protocol):
    """An order of work on the device, and a memory pool of its own."""

    @property
    def replaying(self) -> AbstractContextManager[object]:
        """Held while a graph is started and what it made is copied.

        The next one may use the same memory.
        """

    def active(self) -> AbstractContextManager[object]:
        """Send this thread's work to the stream, and allocate its results from the pool."""

    def ordered(self) -> AbstractContextManager[object]:
        """Send this thread's kernels to the stream; ``empty`` allocates.

        It takes less time than ``active``, and may be entered any number of times.
        """

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """Return an array from the pool."""

    def capture(self, work: Callable[[], Any]) -> tuple[Graph, Any]:
        """Capture what a function does; return that and what the function returned.

        Raises:
            CannotCaptureError: The function waited for the device, or did what cannot be repeated.
        """

    def wait_event(self, event: Event) -> None:
        """Make the stream wait for an event; the host does not wait."""

    def synchronize(self) -> None:
        """Wait until everything is done."""


class CannotCaptureError(RuntimeError):
    """Work that has to be done anew in each run."""


@dataclass(frozen=True)
class View:
    """The place of an array in a block, or in another array.

    Attributes:
        offset: Bytes from its start.
        dtype: The element type.
        shape: The axes' lengths.
        strides: Bytes from an element to the next; ``None`` without gaps.
    """

    offset: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None = None


class Platform(Protocol):
    """One device."""

    @property
    def id(self) -> str:
        """``cuda:0``, ``cuda:1``, ..."""

    @property
    def xp(self) -> Namespace:
        """The namespace of its arrays."""

    @property
    def capability(self) -> tuple[int, int]:
        """The device's compute capability."""

    @property
    def cudnn(self) -> Cudnn | None:
        """cuDNN, if it is there."""

    def stream(self, limit: int, address: int = 0, *, tf32: bool = False) -> Stream:
        """Return a stream whose pool has at most ``limit`` bytes.

        Args:
            limit: In bytes.
            address: A stream of the caller's to use; a new one if 0.
            tf32: Let cuBLAS round the factors of float32 products on it to 10 bits.
        """

    def to_device(self, array: NDArray) -> Array:
        """Copy a host array, in the order of the active stream."""

    def to_host(self, array: Array) -> NDArray:
        """Copy an array to the host and wait for it."""

    def allocate(self, nbytes: int) -> Block:
        """Return memory outside every pool.

        Raises:
            OutOfDeviceMemoryError: There is no such room.
        """

    def array(self, block: Block, view: View) -> Array:
        """Return an array that holds the block it lies in."""

    def part(self, array: Array, view: View, hold: object = None) -> Array:
        """Return an array over another one's memory, which it holds; or an object that does."""

    def write(self, target: Array, source: Array) -> None:
        """Copy an array into one of its shape and element type, in the order of the stream."""

    def adopt(self, data: Any) -> Array:
        """Return an array over another library's memory, by DLPack."""

    def at(self, address: int, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
        """Return an array over memory at an address, which somebody else keeps."""

    def pinned(self, nbytes: int) -> NDArray:
        """Return bytes of the host that the device can read by itself."""

    def copy(self, block: Block, offset: int, source: NDArray) -> Event:
        """Start copying pinned bytes to the device; return when they are there.

        Copies are done in order, and beside all streams' work.
        """

    def map_host(self, address: int, nbytes: int, owner: object) -> Block:
        """Map memory of the host for the device; it takes none of the device's.

        Args:
            address: Of a page.
            nbytes: From there on.
            owner: What keeps the memory, and is held as long as the block.

        Raises:
            OSError: The device or the driver cannot.
        """

    @property
    def uuid(self) -> str:
        """Name the device for all processes."""

    def export(self, block: Block) -> bytes:
        """Return what another process opens a block by.

        Raises:
            OSError: The device or the driver cannot.
        """

    def open(self, handle: bytes, nbytes: int, closed: Callable[[], None]) -> Block:
        """Return another process's block; it takes none of this one's memory.

        Args:
            handle: What ``export`` returned there.
            nbytes: Its length.
            closed: Called once nobody here looks into it any more.

        Raises:
            OSError: It is gone, or cannot be opened here.
        """

    def lend(self, block: Block, hold: object) -> Block:
        """Return a block over the memory of another, whose arrays hold an object, too."""

    def compile(self, source: str, name: str, options: Sequence[str]) -> Launcher:
        """Compile a kernel; the same one once."""
