"""Devices whose arrays callers may have.

This module is public: plug-ins of others may import it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple, TypeGuard

import numpy as np

from tenonnx.errors import NotSupported
from tenonnx.provider import HOST


class DeviceMemory(NamedTuple):
    """The memory of a device.

    Attributes:
        size: Its bytes.
        used: Those that are allocated, whoever did.
    """

    size: int
    used: int


class Lender(ABC):
    """A device whose arrays callers may have, as values, bound inputs and bound outputs.

    Subclass it and define ``upload``, ``download`` and, for outputs in callers' buffers, ``write``;
    the other methods go through the host until they are overridden. Its arrays have ``shape``,
    ``dtype`` and ``nbytes``, and a ``base`` that is not ``None`` if their memory is another one's.

    Work may be underway when a step returns: ``download`` waits for its array, and the runtime
    calls ``synchronize`` before callers get arrays of the device.

    Attributes:
        id: The device's type and number: ``npu``, ``npu:1``.
    """

    id: str

    @abstractmethod
    def upload(self, array: np.ndarray[Any, Any]) -> Any:
        """Return the device's array for a numpy array, which callers may change afterwards."""

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
        """Return an array over another library's memory, by DLPack."""
        del data
        raise NotSupported(f"{self.id} takes no memory of other libraries")

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


def lends(device: Any) -> TypeGuard[Lender]:
    """Return whether a device lends its arrays; the host does not."""
    return device is not HOST and isinstance(device, Lender)  # every run asks
