"""One weight: an immutable handle on bytes that lie somewhere else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from tenonnx.errors import InvalidArgument
from tenonnx.weights.digest import digest
from tenonnx.weights.storage import (
    PROCESS,
    UINT8,
    Element,
    Memory,
    NDArray,
    Storage,
    byte_size,
    is_packed,
    stored_as,
    unpack,
    unpack_into,
)

if TYPE_CHECKING:
    import weakref
    from collections.abc import Callable

    import onnx_ir as ir

    from tenonnx.weights.registry import WeightRegistry


class WeightDevice(Protocol):
    """A device that may need a weight."""

    @property
    def id(self) -> str:
        """``"cpu"`` is the host; others are named like ``"cuda:0"``."""
        ...

    def upload(self, array: NDArray) -> Any:
        """Copy a host array there."""
        ...


@runtime_checkable
class Keeper(Protocol):
    """A device that uploads weights rather than arrays, and each byte once."""

    def place(self, weight: Weight) -> Any:
        """Return the weight's array there; flat packed bytes below 8 bits."""
        ...


# The size of a weight from which processes share weights derived from it.
MIN_SHARED_BYTES = 16 << 10


NOWHERE: dict[str, Any] = {}
# The uploads of all weights that are on no device: there may be a hundred thousand.
NO_DEVICES: set[str] = set()


class Weight:
    """An immutable tensor somewhere in a storage. A registry hands it out; nobody builds it.

    Attributes:
        key: Equal keys, equal contents; stable across processes if the bytes come from a file,
            or were derived from some that do.
        lasting: The key, or one that is stable across processes, once something was derived.
        shape: The logical shape.
        storage: The memory it lies in.
        offset: Where in the storage its first element is.
        strides: Bytes from one element to the next along each axis; ``None`` if contiguous.
        uploads: Its arrays on devices, by their ids.
        placed: The ``Keeper`` devices among them, on which overlapping weights share their bytes.
    """

    __slots__ = (
        "__weakref__",
        "_dtype",
        "_host",
        "_registry",
        "key",
        "lasting",
        "offset",
        "placed",
        "shape",
        "storage",
        "strides",
        "uploads",
    )

    def __init__(
        self,
        registry: WeightRegistry,
        key: str,
        storage: Storage,
        offset: int,
        dtype: Element,
        shape: tuple[int, ...],
        strides: tuple[int, ...] | None = None,
    ) -> None:
        self.key = key
        self.lasting = key
        self.storage = storage
        self.offset = offset
        self._dtype = dtype
        self.shape = shape
        self.strides = strides
        self.uploads: dict[str, Any] = NOWHERE
        self.placed: set[str] = NO_DEVICES
        self._registry = registry
        self._host: Weight | None = None

    @property
    def dtype(self) -> ir.DataType:
        """The ONNX element type."""
        import onnx_ir as ir

        return ir.DataType(self._dtype)

    @property
    def nbytes(self) -> int:
        """Bytes of its elements, packed."""
        return byte_size(self._dtype, self.shape)

    @property
    def array(self) -> NDArray:
        """A read-only view that keeps the weight alive; flat packed bytes below 8 bits.

        May be unaligned; ``on`` gives an array that is not.
        """
        view, (dtype, _) = np.asarray(self), stored_as(self._dtype)
        return view if view.dtype is dtype else view.view(dtype)

    @property
    def __array_interface__(self) -> dict[str, Any]:
        # numpy makes this object the array's base: whoever has the array has the weight.
        return {
            "version": 3,
            "data": (self.storage.address + self.offset, True),
            "shape": (self.nbytes,) if is_packed(self._dtype) else self.shape,
            "strides": self.strides,
            "typestr": stored_as(self._dtype)[1],
        }

    @property
    def is_aligned(self) -> bool:
        """Whether every element lies at a multiple of its size, as numpy wants it."""
        return bool(self.array.flags.aligned)

    def on(self, device: WeightDevice) -> Any:
        """Return the tensor as an array of a device; it is uploaded there once.

        On the host that is an aligned, read-only numpy array. Elements narrower than a byte take
        one each, as in ml_dtypes, unless the device is a ``Keeper``; ``packed`` gives their bytes
        as they are, on any device. Hold the weight for as long as the device's array is wanted.
        """
        if device.id == "cpu":
            return self._on_host()
        with self._registry.locks.table:
            if self.uploads is NOWHERE:
                self.uploads, self.placed = {}, set()
        with self._registry.locks.only_one("upload", device.id, id(self)):
            if hasattr(device, "memory"):
                self._registry.devices[device.id] = device
            if device.id not in self.uploads and isinstance(device, Keeper):
                self.uploads[device.id] = device.place(self)
                self.placed.add(device.id)
            elif device.id not in self.uploads:
                array = self.array
                if is_packed(self._dtype):
                    array = unpack(array, self.dtype, self.shape)
                self.uploads[device.id] = device.upload(array)
            return self.uploads[device.id]

    def packed(self) -> Weight:
        """Return the same bytes as a flat uint8 weight: itself if it is one.

        Raises:
            InvalidArgument: The weight is strided, so its bytes do not lie in one piece.
        """
        if self.strides is not None:
            raise InvalidArgument(f"{self} is strided: its bytes do not lie in one piece")
        size = self.nbytes
        return self._registry.view(self.storage, self.offset, size, UINT8, (size,))

    def derive(self, name: str, build: Callable[[], NDArray], *others: Weight) -> Weight:
        """Return what ``build`` makes of this weight and others, as the registry's ``derive``.

        Args:
            name: Says what is made, with every parameter and a version of the algorithm.
            build: Returns it.
            others: Its other sources.
        """
        sources = (self, *others)
        key = f"{name}:{','.join(source.name_for_others() for source in sources)}"
        return self._registry.derive(key, build, sources)

    def name_for_others(self) -> str:
        """Return ``lasting``, which from then on is a digest where the bytes can never change."""
        lasts = isinstance(self.storage, Memory) and self.storage.is_immutable
        if (
            lasts
            and self.strides is None
            and PROCESS in self.lasting
            and self.nbytes >= MIN_SHARED_BYTES
        ):
            content = digest(self.packed().array.data)
            self.lasting = f"bytes:{content}:{self.dtype.name}:{self.shape}"
        return self.lasting

    def _on_host(self) -> NDArray:
        if is_packed(self._dtype):
            if self._host is None:
                self._host = self._registry.materialize(
                    f"unpacked:{self.key}",
                    UINT8,
                    self.shape,
                    lambda out: unpack_into(out, self.array, self.dtype),
                )
            return self._host.array.view(self.dtype.numpy())
        if self._host is None:
            if (array := self.array).flags.aligned:
                return array
            self._host = self._registry.aligned(self)
        return self._host.array

    def __copy__(self) -> Weight:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Weight:
        return self

    def __repr__(self) -> str:
        return f"<Weight {self.dtype}{list(self.shape)}, {self.key}>"


class Holding(NamedTuple):
    """A note that an object uses some weights."""

    holder: weakref.ref[object]
    name: str
    weights: tuple[weakref.ref[Weight], ...] | None

    def held(self) -> list[Weight]:
        """Return those of them that there are."""
        if self.weights is not None:
            return [weight for each in self.weights if (weight := each()) is not None]
        return list(getattr(self.holder(), "weights", ()))


def weight_in(tensor: object) -> Weight | None:
    """Return the weight that a graph's tensor has its data in; ``None`` if it is no weight's."""
    weight = getattr(tensor, "weight", None)
    return weight if isinstance(weight, Weight) else None
