"""Runs from and to devices: inputs that are there already, and outputs that are to stay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeGuard, runtime_checkable

from tenonnx.planning.lower import is_constant
from tenonnx.provider import HOST, Device

if TYPE_CHECKING:
    import onnx_ir as ir

    from tenonnx.interface.ort_value import OrtValue


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

    def synchronize(self) -> None:
        """Waits until everything that was started is done."""


def lends(device: Any) -> TypeGuard[Lender]:
    """Says whether a device lends its arrays; the host, which is asked in every run, does not."""
    # Asking a protocol takes as long as running a small model.
    return device is not HOST and isinstance(device, Lender)


def on_devices(feeds: Mapping[str, Any]) -> dict[str, OrtValue]:
    """Returns the inputs that are tensors on a device whose arrays can be used as they are."""
    from tenonnx.interface.ort_value import OrtValue

    return {
        name: given
        for name, given in feeds.items()
        if isinstance(given, OrtValue) and lends(given.device) and given.is_tensor()
    }


def settle(
    output: Any, value: ir.Value, device: Device, inputs: Sequence[Any], waited: Sequence[Device]
) -> Any:
    """Makes an output on a device an array of its own, that no input or weight shares.

    Args:
        output: The array.
        value: What it is of the graph.
        device: Where it is.
        inputs: Of the run.
        waited: Devices whose work is to be waited for.
    """
    if device is HOST or not isinstance(device, Lender):
        return output
    for each in waited:
        if isinstance(each, Lender):
            each.synchronize()
    is_view = is_constant(value) or getattr(output, "base", None) is not None
    if is_view or any(output is given for given in inputs):
        return device.copy(output)
    return output
