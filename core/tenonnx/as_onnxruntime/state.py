"""Names of onnxruntime's inner module that programs use, and that tenonnx has otherwise."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import NamedTuple

import onnx

from tenonnx.interface.devices import OrtDevice as NamedDevice
from tenonnx.interface.named_devices import DEVICE_TYPES
from tenonnx.interface.runtime_info import kernels_by_provider
from tenonnx.options import SessionOptions

__all__ = [
    "OrtDevice",
    "get_all_operator_schema",
    "get_all_opkernel_def",
    "get_default_session_options",
    "get_session_initializer",
    "opkernel",
    "schemadef",
]

LAST_VERSION = 2**31 - 1
# Of several names of a number, the first.
DEVICE_NAMES = {number: name for name, number in reversed(DEVICE_TYPES.items())}


class OrtDevice(NamedDevice):
    """A device by the number of its type.

    Args:
        device_type: What ``cpu``, ``cuda``, ... return.
        memory_type: What ``default_memory`` returns.
        place: The number of the device, or its vendor's and then that.
    """

    def __init__(self, device_type: int, memory_type: int, *place: int) -> None:
        del memory_type  # there is but one
        *vendor, number = place
        super().__init__(DEVICE_NAMES[device_type], number, vendor[0] if vendor else 0)

    @staticmethod
    def cpu() -> int:
        """Return the type's number."""
        return DEVICE_TYPES["cpu"]

    @staticmethod
    def cuda() -> int:
        """Return the type's number."""
        return DEVICE_TYPES["cuda"]

    gpu = webgpu = cuda

    @staticmethod
    def npu() -> int:
        """Return the type's number."""
        return DEVICE_TYPES["npu"]

    cann = npu

    @staticmethod
    def dml() -> int:
        """Return the type's number."""
        return DEVICE_TYPES["dml"]

    @staticmethod
    def default_memory() -> int:
        """Return the number of the one kind of memory."""
        return 0

    def vendor_id(self) -> int:
        """Its vendor's number."""
        return self.device_vendor_id()

    def mem_type(self) -> int:
        """The kind of memory: always the default one."""
        return self.device_mem_type()


class KernelDef(NamedTuple):
    """A kernel: which versions of an operator it runs.

    Attributes:
        op_name: The operator.
        domain: The operator's domain, ``""`` for ai.onnx.
        provider: The provider whose it is.
        version_range: The first version and the last.
        type_constraints: Nothing: a kernel takes the types that its operator's schema says.
    """

    op_name: str
    domain: str
    provider: str
    version_range: tuple[int, int]
    type_constraints: dict[str, list[str]]


opkernel = SimpleNamespace(KernelDef=KernelDef)
schemadef = SimpleNamespace(OpSchema=onnx.defs.OpSchema)


def get_all_opkernel_def() -> list[KernelDef]:
    """Return the kernels of all providers that are usable here."""
    found = []
    for provider, kernels in kernels_by_provider():
        since = [kernel.since for kernel in kernels]
        for kernel, following in itertools.zip_longest(kernels, since[1:]):
            last = LAST_VERSION if following is None else following - 1
            found.append(
                KernelDef(kernel.op_type, kernel.domain, provider, (kernel.since, last), {})
            )
    return found


def get_all_operator_schema() -> list[onnx.defs.OpSchema]:
    """Return onnx's schemas; of operators that onnx does not know, name and version alone."""
    found = onnx.defs.get_all_schemas_with_history()
    names = {(schema.domain, schema.name) for schema in found}
    others = {
        (kernel.op_type, kernel.domain, kernel.since)
        for _, kernels in kernels_by_provider()
        for kernel in kernels
        if (kernel.domain, kernel.op_type) not in names
    }
    return [*found, *itertools.starmap(onnx.defs.OpSchema, sorted(others))]


def get_default_session_options() -> SessionOptions:
    """Return options that say nothing."""
    return SessionOptions()


get_session_initializer = get_default_session_options
