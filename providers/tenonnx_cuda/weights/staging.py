"""Copying weights to a device at the speed of its bus.

A mapped file cannot be read by the device's copy engine, so its bytes pass through pinned buffers.
While the engine empties one, threads fill the other: page faults and disk reads overlap with the
transfer, and with each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

import numpy as np

from tenonnx.process.cores import available_cores
from tenonnx.weights.mapping import Mapping
from tenonnx_cuda.platform import Block, Event, NDArray, Platform
from tenonnx_cuda.weights.allocations import Stretch

# Large enough that starting a transfer costs nothing beside it, small enough to pin.
BUFFER_BYTES: Final = 32 << 20

PINNED_BUFFERS: Final = 2
MAX_READERS: Final = 4


@dataclass(frozen=True)
class Piece:
    """Bytes ``start`` to ``stop`` of a stretch, which go to an offset of a block."""

    stretch: Stretch
    start: int
    stop: int
    block: Block
    offset: int


class Staging:
    """Copies stretches of weights to a device.

    Args:
        platform: The device.
        buffer_bytes: Bytes of each pinned buffer.
        readers: Threads that fill one.
    """

    def __init__(
        self,
        platform: Platform,
        buffer_bytes: int = BUFFER_BYTES,
        readers: int = min(MAX_READERS, available_cores()),
    ) -> None:
        self._platform = platform
        self._bytes = buffer_bytes
        self._readers = readers

    def copy(
        self,
        parts: Iterable[tuple[Stretch, Block, int]],
        started: Callable[[Block, Event], None] | None = None,
    ) -> None:
        """Copy each stretch to an offset of a block; return when all of it is there.

        Args:
            parts: Stretches, blocks and offsets, those of a block one after another.
            started: Told, when all copies to a block are underway, after which event it is whole.
        """
        buffers: list[NDArray] = []
        pending: list[Event] = []
        last: tuple[Block, Event] | None = None
        with ThreadPoolExecutor(self._readers, "tenonnx-staging") as readers:
            for number, piece in enumerate(self._pieces(parts)):
                if started and last is not None and last[0] is not piece.block:
                    started(*last)
                turn = number % PINNED_BUFFERS
                if number < PINNED_BUFFERS:
                    buffers.append(self._platform.pinned(self._bytes))
                else:
                    pending[turn].synchronize()
                filled = buffers[turn][: piece.stop - piece.start]
                self._fill(readers, filled, piece)
                event = self._platform.copy(piece.block, piece.offset, filled)
                pending[turn : turn + 1] = [event]
                last = piece.block, event
        if started and last is not None:
            started(*last)
        for event in pending:
            event.synchronize()

    def _pieces(self, parts: Iterable[tuple[Stretch, Block, int]]) -> Iterator[Piece]:
        for stretch, block, offset in parts:
            for start in range(0, stretch.nbytes, self._bytes):
                stop = min(start + self._bytes, stretch.nbytes)
                yield Piece(stretch, start, stop, block, offset + start)

    def _fill(self, readers: ThreadPoolExecutor, target: NDArray, piece: Piece) -> None:
        source = bytes_of(piece.stretch)[piece.start : piece.stop]
        share = -(-source.size // self._readers)
        cuts = [slice(at, at + share) for at in range(0, source.size, share)]
        list(readers.map(lambda cut: np.copyto(target[cut], source[cut]), cuts))
        storage = piece.stretch.storage
        if isinstance(storage, Mapping):
            first = piece.stretch.start
            storage.forget(first + piece.start, first + piece.stop)


def bytes_of(stretch: Stretch) -> NDArray:
    """Return a stretch's bytes, read-only and in place; hold its storage as long as them."""
    interface = {
        "version": 3,
        "data": (stretch.storage.address + stretch.start, True),
        "shape": (stretch.nbytes,),
        "typestr": "|u1",
    }
    return np.asarray(_Bytes(interface, stretch))


class _Bytes:
    """Memory that an array of numpy views and keeps alive."""

    def __init__(self, interface: dict[str, object], stretch: Stretch) -> None:
        self.__array_interface__ = interface
        self.stretch = stretch
