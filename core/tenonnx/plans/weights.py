"""Weights by reference: where their bytes lie, and how the registry is asked for them again."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from tenonnx.plans import Unkept
from tenonnx.weights.mapping import Mapping
from tenonnx.weights.sidefile import running_system
from tenonnx.weights.storage import CONTENT, PROCESS, Memory, Storage, by_content, element

if TYPE_CHECKING:
    from tenonnx.weights.registry import WeightRegistry
    from tenonnx.weights.weight import Weight

LARGEST = 64 << 10
"""Bytes of a weight in a process's own memory that a plan keeps."""


ALIGNMENT = 64
"""Of weights in a file."""


Place: TypeAlias = "tuple[int, int, tuple[int, ...], tuple[int, ...] | None]"
"""A weight in a storage: offset, element type, logical shape, strides if it is not contiguous."""


class Stores:
    """The storages that a plan's weights lie in, numbered as they are met.

    Args:
        registry: Of the weights.

    Attributes:
        files: Models' files, by path.
    """

    def __init__(self, registry: WeightRegistry) -> None:
        self._registry = registry
        self.files: dict[str, Mapping] = {}
        self._known: dict[int, tuple[str, Any]] = {}

    def reference(self, weight: Weight) -> tuple[str, Any, Place]:
        """Returns the kind of storage a weight lies in, what names that, and the place there.

        Raises:
            Unkept: No other process can have it.
        """
        storage = weight.storage
        if id(storage) not in self._known:
            self._known[id(storage)] = self._of(storage)
        place = weight.offset, int(weight._dtype), weight.shape, weight.strides
        return *self._known[id(storage)], place

    def _of(self, storage: Storage) -> tuple[str, Any]:
        if isinstance(storage, Mapping) and storage.kind == "mapped":
            path = os.path.abspath(storage.path)
            self.files[path] = storage
            return "file", path
        lasts = PROCESS not in storage.key
        if isinstance(storage, Mapping):
            if not lasts:
                raise Unkept("a side file is of no key that other processes know")
            state = running_system(), tuple(storage.identity)
            return "derived", (os.path.basename(storage.path), storage.key, state)
        if not isinstance(storage, Memory) or storage.size > LARGEST:
            raise Unkept(f"weights lie in {storage.label}")
        content = _bytes_of(storage)
        return "small", (storage.key if lasts else by_content(content), content)


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
        """Returns where a weight is going to lie; the file is called by an empty path."""
        storage = weight.storage
        if not isinstance(storage, Mapping):
            kind, (_, content), place = super().reference(weight)
            return kind, (by_content(content), content), place
        if id(storage) not in self._bases:
            self.end += -self.end % ALIGNMENT
            self._bases[id(storage)] = self.end
            self.more.append((self.end, storage.buffer))
            self.end += storage.size
        offset = self._bases[id(storage)] + weight.offset
        return "file", "", (offset, int(weight._dtype), weight.shape, weight.strides)


def _bytes_of(storage: Memory) -> bytes:
    import ctypes  # is loaded, by what maps files

    return ctypes.string_at(storage.address, storage.size)


class Opened:
    """The storages of a plan that is opened.

    Args:
        registry: Where weights are to be.
        files: Models' files by path, mapped and known to be what they were.
    """

    def __init__(self, registry: WeightRegistry, files: dict[str, Mapping]) -> None:
        self._registry, self._files = registry, files
        self._derived: dict[str, Storage] = {}
        self._weights: dict[tuple[Any, ...], Weight] = {}

    def weight(self, kind: str, name: Any, place: tuple[Any, ...]) -> Weight:
        """Returns the weight at a place, which a plan and its captures ask for each.

        Raises:
            Unkept: A side file is gone.
        """
        if (found := self._weights.get((name, place))) is None:
            offset, number, shape, strides = place
            storage = self._storage(kind, name)
            found = self._registry._weight(storage, offset, element(number), shape, strides)
            self._weights[name, place] = found
        return found

    def _storage(self, kind: str, name: Any) -> Storage:
        if kind == "file":
            return self._files[name]
        if kind == "small":
            return self._small(*name)
        file, key, state = name
        if key not in self._derived:
            found = self._registry.side_files.again(file, key, state)
            if found is None:
                raise Unkept("a side file of derived weights is gone")
            self._derived[key] = self._registry._share(key, found)
        return self._derived[key]

    def _small(self, key: str, content: bytes) -> Storage:
        owner = np.frombuffer(content, np.uint8)
        if not key.startswith(CONTENT):
            owner = owner.copy()
        return self._registry._share(key, Memory(owner, "private", key))
