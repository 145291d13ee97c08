"""Devices whose arrays callers may have.

This module is public: plug-ins of others may import it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any, NamedTuple, Protocol, TypeGuard

import numpy as np

from tenonnx.errors import NotSupported
from tenonnx.planning.step import HOST, Device

# DLPack's number of the host's memory.
HOST_MEMORY = 1


class DeviceMemory(NamedTuple):
    """The memory of a device.

    Attributes:
        size: Its bytes.
        used: Those that are allocated, whoever did.
    """

    size: int
    used: int


class Event(Protocol):
    """The end of work that a step left underway: the attribute ``event`` of an array it makes."""

    def wait(self) -> None:
        """Return when the array is there; raise what its work raised, or work that it needs."""


class DeviceArray:
    """Base class of a device's arrays, for those who like one; the runtime asks for no more."""

    base: Any = None
    event: Event | None = None

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.shape, self.dtype = shape, dtype
        self.nbytes = math.prod(shape) * dtype.itemsize


class ExposesArrays(ABC):
    """A device whose arrays callers may have, as values, bound inputs and bound outputs.

    Subclass it and define ``upload``, ``download`` and, for outputs in callers' buffers, ``write``;
    the other methods go through the host until they are overridden. Its arrays have ``shape``,
    ``dtype`` and ``nbytes``, and a ``base`` that is not ``None`` if their memory is another one's.

    Work may be underway when a step returns. Its arrays have an ``Event`` as their ``event`` then,
    or ``None``: the runtime waits for it where the host reads the array, and hands arrays to
    callers before they are there. Steps of the device itself see to their order. A device without
    events waits in ``download``, and in ``synchronize``, which the runtime calls before callers get
    its arrays.

    Attributes:
        id: The device's type and number: ``npu``, ``npu:1``.
    """

    id: str

    @abstractmethod
    def upload(self, array: np.ndarray[Any, Any]) -> Any:
        """Return the device's array for a numpy array, which may change as soon as this returns."""

    @abstractmethod
    def download(self, array: Any) -> np.ndarray[Any, Any]:
        """Return a numpy array of its own for a device's array."""

    def stack(self, arrays: list[Any], axis: int) -> Any:
        """Join arrays of one shape along a new axis."""
        return self.upload(np.stack([self.download(each) for each in arrays], axis))

    def copy(self, array: Any) -> Any:
        """Return an array of its own with the same contents."""
        return self.upload(self.download(array))

    def write(self, target: Any, source: Any) -> None:
        """Overwrite an array of the device with another one of its shape and dtype."""
        del target, source
        raise NotSupported(
            f"arrays of {self.id} cannot be written",
            hint="bind the output to the device: bind_output(name, session.device)",
        )

    def adopt(self, data: Any) -> Any:
        """Return an array over another library's memory, by DLPack; a copy if it cannot be one.

        Raises:
            NotSupported: The memory is neither the host's nor the device's.
        """
        kind, _ = data.__dlpack_device__()
        if int(kind) != HOST_MEMORY:
            raise NotSupported(f"{self.id} takes no memory of other devices")
        return self.upload(np.from_dlpack(data))

    def at(self, address: int, dtype: Any, shape: tuple[int, ...]) -> Any:
        """Return an array over memory at an address, which the caller keeps."""
        del address, dtype, shape
        raise NotSupported(f"memory of {self.id} has no addresses", hint="bind an OrtValue")

    def contiguous(self, array: Any) -> Any:
        """Return an array whose elements lie in order: itself, unless a device has others."""
        return array

    def address(self, array: Any) -> int:
        """Return the address of the first element of an array whose elements lie in order."""
        del array
        raise NotSupported(f"memory of {self.id} has no addresses")

    def shares(self, one: Any, other: Any) -> bool:
        """Return whether two arrays of the device may have memory in common."""
        del one, other
        return True

    def synchronize(self) -> None:  # noqa: B027 - nothing to wait for
        """Wait until everything that was started is done."""

    def memory(self) -> DeviceMemory | None:
        """Return the size of the device's memory, and what of it is used; ``None`` if unknown."""
        return None


def downloaded(device: Device, array: Any) -> np.ndarray[Any, Any]:
    """Return a device's array on the host, once the work that makes it is done."""
    wait_for(array)
    return device.download(array)


def wait_for(array: Any) -> None:
    """Wait until the work that makes an array is done.

    Raises:
        Exception: What the work raised.
    """
    event: Event | None = getattr(array, "event", None)
    if event is not None:
        event.wait()


def exposes_arrays(device: Any) -> TypeGuard[ExposesArrays]:
    """Return whether a device lends its arrays; the host does not."""
    return device is not HOST and isinstance(device, ExposesArrays)  # every run asks
