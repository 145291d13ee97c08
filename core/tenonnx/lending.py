"""Devices whose arrays callers may have."""

from __future__ import annotations

from typing import Any, Protocol, TypeGuard, runtime_checkable

from tenonnx.provider import HOST, Device


@runtime_checkable
class Lender(Device, Protocol):
    """A device whose arrays callers may have: work on them is waited for before they get them."""

    def copy(self, array: Any) -> Any:
        """Returns an array of its own with the same contents."""

    def write(self, target: Any, source: Any) -> None:
        """Overwrites an array of the device with another one."""

    def adopt(self, data: Any) -> Any:
        """Returns an array over another library's memory, by DLPack."""

    def at(self, address: int, dtype: Any, shape: tuple[int, ...]) -> Any:
        """Returns an array over memory at an address, which the caller keeps."""

    def shares(self, one: Any, other: Any) -> bool:
        """Says whether two arrays of the device may have memory in common."""

    def synchronize(self) -> None:
        """Waits until everything that was started is done."""


def lends(device: Any) -> TypeGuard[Lender]:
    """Says whether a device lends its arrays; the host, which is asked in every run, does not."""
    if device is HOST:
        return False
    # Asking a protocol takes as long as running a small model.
    if (known := _lenders.get(type(device))) is None:
        known = _lenders[type(device)] = isinstance(device, Lender)
    return known


_lenders: dict[type, bool] = {}
