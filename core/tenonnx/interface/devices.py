"""Descriptions of devices and memory, in onnxruntime's words."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tenonnx.errors import NotSupported
from tenonnx.interface.device_enums import (
    OrtAllocatorType,
    OrtDeviceMemoryType,
    OrtDeviceVendorId,
    OrtHardwareDeviceType,
    OrtMemoryInfoDeviceType,
    OrtMemType,
)
from tenonnx.interface.named_devices import DEVICE_TYPES, require_type
from tenonnx.provider import Provider, why_unusable

if TYPE_CHECKING:
    from tenonnx.plugins.manager import PluginSet

# Kinds of hardware by the same names, where they are not processors.
HARDWARE = {
    "cuda": OrtHardwareDeviceType.GPU,
    "gpu": OrtHardwareDeviceType.GPU,
    "dml": OrtHardwareDeviceType.GPU,
    "webgpu": OrtHardwareDeviceType.GPU,
    "npu": OrtHardwareDeviceType.NPU,
    "cann": OrtHardwareDeviceType.NPU,
}

VENDORS = {
    "cuda": OrtDeviceVendorId.NVIDIA,
    "dml": OrtDeviceVendorId.MICROSOFT,
    "cann": OrtDeviceVendorId.HUAWEI,
}


class OrtDevice:
    """A device by type and number.

    Args:
        name: ``cpu``, ``cuda``, ...
        number: The device's number.
        vendor: Its vendor; by the name if negative.
    """

    def __init__(self, name: str = "cpu", number: int = 0, vendor: int = -1) -> None:
        require_type(name)
        self.name = name
        self._number = number
        self._vendor = VENDORS.get(name, OrtDeviceVendorId.NONE) if vendor < 0 else vendor

    @staticmethod
    def make(ort_device_name: str, device_id: int, vendor_id: int = -1) -> OrtDevice:
        """Return the device of a name and number."""
        return OrtDevice(ort_device_name, device_id, vendor_id)

    def device_id(self) -> int:
        """Its number among the devices of its type."""
        return self._number

    def device_type(self) -> int:
        """Onnxruntime's number of its type; an NPU's for devices of plug-ins."""
        return DEVICE_TYPES.get(self.name, DEVICE_TYPES["npu"])

    def device_vendor_id(self) -> int:
        """Its vendor's number."""
        return int(self._vendor)

    def device_mem_type(self) -> int:
        """The kind of memory: always the default one."""
        return int(OrtDeviceMemoryType.DEFAULT)


@dataclass(frozen=True)
class OrtMemoryInfo:
    """The device of tensors."""

    name: str
    allocator_type: OrtAllocatorType = OrtAllocatorType.ORT_DEVICE_ALLOCATOR
    device_id: int = 0
    mem_type: OrtMemType = OrtMemType.DEFAULT
    device_mem_type: OrtDeviceMemoryType = OrtDeviceMemoryType.DEFAULT
    device_vendor_id: int = 0

    @classmethod
    def create_v2(
        cls,
        name: str,
        device_type: OrtMemoryInfoDeviceType,
        vendor_id: int,
        device_id: int,
        device_mem_type: OrtDeviceMemoryType,
        alignment: int,
        allocator_type: OrtAllocatorType,
    ) -> OrtMemoryInfo:
        """Return a description in onnxruntime's second form."""
        del device_type, alignment
        return cls(name, allocator_type, device_id, OrtMemType.DEFAULT, device_mem_type, vendor_id)


@dataclass
class OrtArenaCfg:
    """The growth of onnxruntime's arenas; accepted, there is none here."""

    max_mem: int = 0
    arena_extend_strategy: int = -1
    initial_chunk_size_bytes: int = -1
    max_dead_bytes_per_chunk: int = -1
    initial_growth_chunk_size_bytes: int = -1
    max_power_of_two_extend_bytes: int = -1


HOST_MEMORY = OrtMemoryInfo("Cpu")


@dataclass(frozen=True)
class OrtHardwareDevice:
    """A piece of hardware."""

    type: OrtHardwareDeviceType
    vendor: str = ""
    vendor_id: int = 0
    device_id: int = 0
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class OrtEpDevice:
    """A provider and the hardware it runs on."""

    ep_name: str
    ep_vendor: str
    device: OrtHardwareDevice
    ep_metadata: Mapping[str, str] = field(default_factory=dict)
    ep_options: Mapping[str, str] = field(default_factory=dict)

    def memory_info(self, memory: OrtDeviceMemoryType) -> OrtMemoryInfo:
        """Describe the provider's memory."""
        del memory
        return HOST_MEMORY if self.device.type == 0 else OrtMemoryInfo(self.ep_name)

    def create_sync_stream(self) -> Any:
        """Refuse a stream.

        Raises:
            NotSupported: Always.
        """
        raise NotSupported(
            "runs return when their outputs are there: there is no stream to wait on"
        )


def hardware_of(provider: type[Provider]) -> OrtHardwareDevice:
    """Describe what a provider runs on, by the device of its class."""
    kind = HARDWARE.get(provider.device.id, OrtHardwareDeviceType.CPU)
    on_host = kind is OrtHardwareDeviceType.CPU
    return OrtHardwareDevice(kind, platform.machine() if on_host else "")


def ep_devices(plugins: PluginSet) -> list[OrtEpDevice]:
    """Return the providers that are usable here, each with its hardware; GPUs and NPUs first.

    Programs hand the list to a session, which prefers what stands first.
    """
    found = [
        OrtEpDevice(provider.name, plugins.owner("provider", provider.name), hardware_of(provider))
        for provider in plugins.providers.values()
        if why_unusable(provider) is None
    ]
    return sorted(found, key=lambda each: each.device.type is OrtHardwareDeviceType.CPU)
