"""Weights by reference: where their bytes lie, and how the registry is asked for them again."""

from __future__ import annotations

import ctypes  # is loaded, by what maps files
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from tenonnx.plan_cache import NotCacheable
from tenonnx.weights.mapping import Mapping
from tenonnx.weights.sidefile import running_system
from tenonnx.weights.storage import (
    CONTENT,
    PROCESS,
    UINT8,
    Element,
    Memory,
    NDArray,
    Storage,
    by_content,
    byte_size,
    element,
    padded,
)

if TYPE_CHECKING:
    from tenonnx.weights.registry import WeightRegistry
    from tenonnx.weights.weight import Weight

# Bytes up to which a plan keeps a weight that is in a process's own memory.
MAX_WEIGHT_BYTES = 64 << 10


# Alignment of weights in a file.
WEIGHT_ALIGNMENT_BYTES = 64

# A weight in a storage: offset, element type, logical shape, strides if it is not contiguous.
Place: TypeAlias = "tuple[int, int, tuple[int, ...], tuple[int, ...] | None]"


class Pool:
    """The bytes of a plan's small weights, in one piece beside its pickles.

    Args:
        opened: The storage of the piece, in a plan that was opened.
    """

    def __init__(self, opened: Storage | None = None) -> None:
        self._opened, self._closed = opened, opened is not None
        self._places: dict[bytes, int] = {}
        self._known: dict[Weight, int] = {}
        self._pieces: list[bytes] = []
        self._size = 0

    def place_of(self, weight: Weight) -> int | None:
        """Return where a small weight's bytes are, adding them; ``None`` if it cannot have them.

        Args:
            weight: Of any size.
        """
        storage = weight.storage
        if storage is self._opened:
            return weight.offset
        if (place := self._known.get(weight)) is not None:
            return place
        if not _is_small(storage) or (self._closed and not self._places):
            return None
        content, start = _bytes_around(weight)
        if (place := self._places.get(content)) is None:
            if self._closed:
                return None
            place = self._places[content] = self._size
            self._pieces.append(padded(content))
            self._size += len(self._pieces[-1])
        self._known[weight] = place + start
        return place + start

    def close(self) -> tuple[str, bytes]:
        """Return what names the bytes, and these, to which no others can be added any more."""
        content = b"".join(self._pieces)
        self._closed, self._pieces = True, []
        self._known.clear()
        return by_content(content), content


class Stores:
    """The storages that a plan's weights lie in, numbered as they are met.

    Args:
        registry: Of the weights.
        pool: Has the bytes of small weights, or takes them.

    Attributes:
        files: Models' files, by path.
    """

    def __init__(self, registry: WeightRegistry, pool: Pool | None = None) -> None:
        self._registry = registry
        self.pool = Pool() if pool is None else pool
        self.files: dict[str, Mapping] = {}
        self._known: dict[int, tuple[str, Any]] = {}

    def reference(self, weight: Weight) -> tuple[str, Any, Place]:
        """Return the kind of storage a weight lies in, what names that, and the place there.

        Raises:
            NotCacheable: No other process can have it.
        """
        storage = weight.storage
        shape, number = weight.shape, int(weight._dtype)
        if (place := self.pool.place_of(weight)) is not None:
            return "small", _lasting(weight), (place, number, shape, weight.strides)
        if id(storage) not in self._known:
            self._known[id(storage)] = self._of(storage)
        return *self._known[id(storage)], (weight.offset, number, shape, weight.strides)

    def derived(self) -> list[Any]:
        """Return what names the side files that weights lie in."""
        return [name for kind, name in self._known.values() if kind == "derived"]

    def _of(self, storage: Storage) -> tuple[str, Any]:
        if isinstance(storage, Mapping) and storage.kind == "mapped":
            path = os.path.abspath(storage.path)
            self.files[path] = storage
            return "file", path
        lasts = PROCESS not in storage.key
        if isinstance(storage, Mapping):
            if not lasts:
                raise NotCacheable("a side file is of no key that other processes know")
            state = running_system(), tuple(storage.identity)
            return "derived", (os.path.basename(storage.path), storage.key, state)
        if not _is_small(storage):
            raise NotCacheable(f"weights lie in {storage.label}")
        content = _bytes_of(storage)
        return "alone", (storage.key if lasts else by_content(content), content)


class Gathered(Stores):
    """The storages of a plan that goes into one file, with all that its weights need.

    Args:
        registry: Of the weights.
        own: The file, which has the model's weights already.

    Attributes:
        more: What is to be added to the file, and where.
        end: Where the file ends then.
    """

    def __init__(self, registry: WeightRegistry, own: Mapping) -> None:
        super().__init__(registry)
        self.more: list[tuple[int, memoryview]] = []
        self.end = own.identity.size
        self._bases = {id(own): 0}

    def reference(self, weight: Weight) -> tuple[str, Any, Place]:
        """Return where a weight is going to lie; the file is called by an empty path."""
        storage = weight.storage
        if not isinstance(storage, Mapping):
            return super().reference(weight)
        if id(storage) not in self._bases:
            self.end += -self.end % WEIGHT_ALIGNMENT_BYTES
            self._bases[id(storage)] = self.end
            self.more.append((self.end, storage.buffer))
            self.end += storage.size
        offset = self._bases[id(storage)] + weight.offset
        return "file", "", (offset, int(weight._dtype), weight.shape, weight.strides)


def _is_small(storage: Storage) -> bool:
    return isinstance(storage, Memory) and storage.size <= MAX_WEIGHT_BYTES


def _bytes_of(storage: Storage) -> bytes:
    return ctypes.string_at(storage.address, storage.size)


def _bytes_around(weight: Weight) -> tuple[bytes, int]:
    """Return a weight's bytes, or its storage's if it is strided, and where it begins in them."""
    storage = weight.storage
    if weight.strides is not None:
        return _bytes_of(storage), weight.offset
    return ctypes.string_at(storage.address + weight.offset, weight.nbytes), 0


def _lasting(weight: Weight) -> str:
    """Return a small weight's key, which names its bytes by what they are if it must."""
    own, key = weight.storage.key, weight.key
    if PROCESS not in key:
        return key
    return by_content(_bytes_of(weight.storage)) + key.removeprefix(own)


def _require_inside(
    storage: Storage,
    offset: int,
    dtype: Element,
    shape: tuple[int, ...],
    strides: tuple[int, ...] | None,
) -> None:
    """Make sure that a weight lies in a storage, whatever a plan says.

    Raises:
        NotCacheable: It does not.
    """
    first, size = offset, byte_size(dtype, shape)
    if strides is not None and size:
        steps = [(n - 1) * stride for n, stride in zip(shape, strides, strict=True)]
        first += sum(step for step in steps if step < 0)
        size = sum(map(abs, steps)) + byte_size(dtype, ())
    if min(first, size, *shape, 0) < 0 or first + size > storage.size:
        raise NotCacheable("a weight lies outside of its file")


class Opened:
    """The storages of a plan that is opened.

    Args:
        registry: Where weights are to be.
        files: Models' files by path, mapped and known to be what they were.

    Attributes:
        pool: The storage of small weights, if there are any.
        small: Their bytes.
    """

    pool: Storage | None = None
    small: NDArray

    def __init__(self, registry: WeightRegistry, files: dict[str, Mapping]) -> None:
        self._registry, self._files = registry, files
        self._derived: dict[str, Storage] = {}
        self._weights: dict[tuple[Any, ...], Weight] = {}

    def take_pool(self, key: str, content: memoryview) -> None:
        """Take the bytes of small weights, and what names them."""
        memory = Memory(np.frombuffer(content, np.uint8), "derived", key)
        self.pool = self._registry._share(key, memory)
        # Whoever has a view of them has a weight, as with other weights.
        self.small = self._registry.view(self.pool, 0, memory.size, UINT8, (memory.size,)).array

    def weight(self, kind: str, name: Any, place: tuple[Any, ...]) -> Weight:
        """Return the weight at a place.

        Raises:
            NotCacheable: A side file is gone.
        """
        offset, number, shape, strides = place
        storage = self._storage(kind, name)
        _require_inside(storage, offset, element(number), shape, strides)
        if kind == "small":
            return self._registry._named(name, storage, offset, element(number), shape, strides)
        if (found := self._weights.get((name, place))) is None:
            found = self._registry._weight(storage, offset, element(number), shape, strides)
            self._weights[name, place] = found
        return found

    def settled(self) -> Pool:
        """Let go of what is known of places, once all have their weights; return small ones."""
        self._weights.clear()
        return Pool(self.pool)

    def require(self, derived: Iterable[Any]) -> None:
        """Make sure that side files are there, and are as long as this is.

        Raises:
            NotCacheable: One is gone.
        """
        for name in derived:
            self._storage("derived", name)

    def _storage(self, kind: str, name: Any) -> Storage:
        if kind == "small":
            assert self.pool is not None, "its bytes are there"
            return self.pool
        if kind == "file":
            return self._files[name]
        if kind == "alone":
            return self._alone(*name)
        file, key, state = name
        if key not in self._derived:
            found = self._registry.side_files.again(file, key, state)
            if found is None:
                raise NotCacheable("a side file of derived weights is gone")
            self._derived[key] = self._registry._share(key, found)
        return self._derived[key]

    def _alone(self, key: str, content: bytes) -> Storage:
        owner = np.frombuffer(content, np.uint8)
        if not key.startswith(CONTENT):
            owner = owner.copy()
        return self._registry._share(key, Memory(owner, "private", key))
