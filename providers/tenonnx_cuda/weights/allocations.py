"""Stretches of the weights' bytes that go to a device, and their allocations there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from tenonnx.weights.storage import Storage, byte_size
from tenonnx.weights.weight import Weight

# Small stretches share an allocation of this size; one that is larger has its own.
ALLOCATION_BYTES: Final = 64 << 20

# The alignment of stretches: cudaMalloc guarantees it, vector loads and tensor cores need it.
ALLOCATION_ALIGNMENT_BYTES: Final = 256


@dataclass(frozen=True)
class Stretch:
    """Bytes ``start`` to ``stop`` of a storage."""

    storage: Storage
    start: int
    stop: int

    @property
    def nbytes(self) -> int:
        """Its length."""
        return self.stop - self.start


@dataclass(frozen=True)
class Allocation:
    """One allocation, and the stretches in it with the offset of each."""

    nbytes: int
    parts: tuple[tuple[int, Stretch], ...]


def stretch_of(weight: Weight) -> Stretch:
    """Return the bytes that a weight's elements lie in."""
    if weight.strides is None:
        return Stretch(weight.storage, weight.offset, weight.offset + weight.nbytes)
    if 0 in weight.shape:
        return Stretch(weight.storage, weight.offset, weight.offset)
    width = byte_size(weight.dtype, ())
    steps = [(n - 1) * s for n, s in zip(weight.shape, weight.strides, strict=True)]
    first = weight.offset + sum(step for step in steps if step < 0)
    last = weight.offset + sum(step for step in steps if step > 0) + width
    return Stretch(weight.storage, first, last)


def merged(stretches: Iterable[Stretch]) -> list[Stretch]:
    """Return the stretches in their storages' order, those that overlap as one."""
    by_place = sorted(stretches, key=lambda s: (s.storage.key, s.start, -s.stop))
    found: list[Stretch] = []
    for stretch in by_place:
        last = found[-1] if found else None
        if last and last.storage is stretch.storage and stretch.start < last.stop:
            found[-1] = Stretch(last.storage, last.start, max(last.stop, stretch.stop))
        else:
            found.append(stretch)
    return found


def pack(stretches: Iterable[Stretch]) -> Iterator[Allocation]:
    """Yield allocations for stretches: in their order, so that files are read front to back."""
    parts: list[tuple[int, Stretch]] = []
    used = 0
    for stretch in stretches:
        if stretch.nbytes >= ALLOCATION_BYTES:
            yield Allocation(stretch.nbytes, ((0, stretch),))
            continue
        start = -(-used // ALLOCATION_ALIGNMENT_BYTES) * ALLOCATION_ALIGNMENT_BYTES
        if start + stretch.nbytes > ALLOCATION_BYTES:
            yield Allocation(used, tuple(parts))
            parts, start = [], 0
        parts.append((start, stretch))
        used = start + stretch.nbytes
    if parts:
        yield Allocation(used, tuple(parts))
