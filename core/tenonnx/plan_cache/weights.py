"""Weights by reference: where their bytes lie, and how the registry is asked for them again."""

from __future__ import annotations

import ctypes  # is loaded, by what maps files
import os
from collections.abc import Mapping as Table
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from tenonnx.plan_cache import NotCacheable
from tenonnx.weights.mapping import Mapping
from tenonnx.weights.sidefile import running_system
from tenonnx.weights.storage import (
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
    from tenonnx.options import SessionOptions
    from tenonnx.weights.registry import WeightRegistry
    from tenonnx.weights.weight import Weight

# Bytes up to which a plan has those of a storage in a process's own memory: in its pool.
MAX_POOLED_BYTES = 64 << 10

# The pool's number: it is the last storage.
POOL = -1

# Alignment of weights in a file.
WEIGHT_ALIGNMENT_BYTES = 64

# A storage that other processes have: of a model's file its path; of a side file its name, the
# weight's key and the file's state. Plain values.
Named: TypeAlias = "tuple[str] | tuple[str, str, Any]"


class Stores:
    """The storages that the weights of a pickle lie in, numbered as they are met.

    Attributes:
        files: Models' files, by path.
    """

    def __init__(self) -> None:
        self.files: dict[str, Mapping] = {}
        self._names: list[Named] = []
        # The number of each storage, and how far from the beginning of that it begins.
        self._bases: dict[Storage, tuple[int, int]] = {}
        self._pool = bytearray()
        self._pieces: dict[bytes, int] = {}

    def reference(self, weight: Weight) -> tuple[Any, ...]:
        """Return the arguments of ``Opened.weight`` for a weight.

        Raises:
            NotCacheable: No other process can have it.
        """
        place = *self.place_of(weight), int(weight._dtype), weight.shape, weight.strides
        return (*place, _lasting(weight)) if is_small(weight) else place

    def place_of(self, weight: Weight) -> tuple[int, int]:
        """Return the number of a weight's storage, and where the weight begins in that.

        Raises:
            NotCacheable: No other process can have it.
        """
        if is_small(weight):
            content, start = _bytes_around(weight)
            if content not in self._pieces:
                self._pieces[content] = len(self._pool)
                self._pool += padded(content)
            return POOL, self._pieces[content] + start
        storage = weight.storage
        if storage not in self._bases:
            self._bases[storage] = self._base_of(storage)
        number, base = self._bases[storage]
        return number, base + weight.offset

    def named(self) -> tuple[list[Named], str]:
        """Return what names the storages, and the pool, as plain values."""
        return self._names, by_content(self._pool)

    @property
    def pool(self) -> bytearray:
        """The bytes of small weights, in one piece."""
        return self._pool

    def _base_of(self, storage: Storage) -> tuple[int, int]:
        if not isinstance(storage, Mapping):
            raise NotCacheable(f"weights lie in {storage.label}")
        if storage.kind == "mapped":
            path = os.path.abspath(storage.path)
            self.files[path] = storage
            self._names.append((path,))
        elif PROCESS in storage.key:
            raise NotCacheable("a side file is of no key that other processes know")
        else:
            state = running_system(), tuple(storage.identity)
            self._names.append((os.path.basename(storage.path), storage.key, state))
        return len(self._names) - 1, 0


class Gathered(Stores):
    """The storages of a plan that goes into one file, with all that its weights need.

    Args:
        own: The file, which has the model's weights already, and is called by an empty path.

    Attributes:
        more: What is to be added to the file, and where.
        end: Where the file ends then.
    """

    def __init__(self, own: Mapping) -> None:
        super().__init__()
        self.more: list[tuple[int, memoryview]] = []
        self.end = own.identity.size
        self._names, self._bases = [("",)], {own: (0, 0)}

    def _base_of(self, storage: Storage) -> tuple[int, int]:
        if not isinstance(storage, Mapping):
            return super()._base_of(storage)
        base = self.end + -self.end % WEIGHT_ALIGNMENT_BYTES
        self.more.append((base, storage.buffer))
        self.end = base + storage.size
        return 0, base


def is_small(weight: Weight) -> bool:
    """Return whether a weight's bytes go into the pool."""
    storage = weight.storage
    return isinstance(storage, Memory) and storage.size <= MAX_POOLED_BYTES


def _bytes_around(weight: Weight) -> tuple[bytes, int]:
    """Return a weight's bytes, or its storage's if it is strided, and where it begins in them."""
    storage = weight.storage
    if weight.strides is not None:
        return ctypes.string_at(storage.address, storage.size), weight.offset
    return ctypes.string_at(storage.address + weight.offset, weight.nbytes), 0


def _lasting(weight: Weight) -> str:
    """Return a small weight's key, which names its bytes by what they are if it must."""
    own, key = weight.storage, weight.key
    if PROCESS not in key:
        return key
    return by_content(ctypes.string_at(own.address, own.size)) + key.removeprefix(own.key)


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
    """A plan that is opened, as its pickles refer to it: its storages, and the session's options.

    Args:
        options: The session's.
        registry: Where weights are to be.
        files: Models' files by path, mapped and known to be what they were.
        named: What ``Stores.named`` returned.
        pool: The bytes of small weights.

    Attributes:
        options: The session's.

    Raises:
        NotCacheable: A side file is gone.
    """

    def __init__(
        self,
        options: SessionOptions,
        registry: WeightRegistry,
        files: Table[str, Mapping],
        named: tuple[Sequence[Named], str],
        pool: memoryview,
    ) -> None:
        names, key = named
        self.options, self._registry = options, registry
        self._storages = [
            files[each[0]] if len(each) == 1 else self._side_file(*each) for each in names
        ]
        if pool.nbytes:
            memory = Memory(np.frombuffer(pool, np.uint8), "derived", key)
            self._storages.append(registry._share(key, memory))
        self._flat: dict[int, NDArray] = {}

    def weight(
        self,
        number: int,
        offset: int,
        dtype: int,
        shape: tuple[int, ...],
        strides: tuple[int, ...] | None,
        key: str | None = None,
    ) -> Weight:
        """Return the weight at a place.

        Raises:
            NotCacheable: It lies outside of its storage.
        """
        storage, kind = self._storages[number], element(dtype)
        _require_inside(storage, offset, kind, shape, strides)
        if key is not None:
            return self._registry._named(key, storage, offset, kind, shape, strides)
        return self._registry._weight(storage, offset, kind, shape, strides)

    def flat(self, number: int) -> NDArray:
        """Return all bytes of a storage; whoever has a view of them has a weight, as of others."""
        if number not in self._flat:
            storage = self._storages[number]
            whole = self._registry.view(storage, 0, storage.size, UINT8, (storage.size,))
            self._flat[number] = whole.array
        return self._flat[number]

    def _side_file(self, name: str, key: str, state: Any) -> Storage:
        found = self._registry.side_files.again(name, key, state)
        if found is None:
            raise NotCacheable("a side file of derived weights is gone")
        return self._registry._share(key, found)
