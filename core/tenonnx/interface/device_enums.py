"""onnxruntime's enumerations of memory and devices, with its names and numbers."""

from __future__ import annotations

import enum


class OrtAllocatorType(enum.IntEnum):
    """Kinds of allocators."""

    INVALID = -1
    ORT_DEVICE_ALLOCATOR = 0
    ORT_ARENA_ALLOCATOR = 1


class OrtMemType(enum.IntEnum):
    """The purpose of memory."""

    CPU_INPUT = -2
    CPU_OUTPUT = -1
    CPU = -1
    DEFAULT = 0


class OrtSparseFormat(enum.IntEnum):
    """The way in which a sparse tensor notes the places of its values."""

    ORT_SPARSE_UNDEFINED = 0
    ORT_SPARSE_COO = 1
    ORT_SPARSE_CSRC = 2
    ORT_SPARSE_BLOCK_SPARSE = 4


class OrtExecutionProviderDevicePolicy(enum.IntEnum):
    """Preferences by which onnxruntime picks a provider."""

    DEFAULT = 0
    PREFER_CPU = 1
    PREFER_NPU = 2
    PREFER_GPU = 3
    MAX_PERFORMANCE = 4
    MAX_EFFICIENCY = 5
    MIN_OVERALL_POWER = 6


class OrtHardwareDeviceType(enum.IntEnum):
    """Kinds of hardware."""

    CPU = 0
    GPU = 1
    NPU = 2


class OrtMemoryInfoDeviceType(enum.IntEnum):
    """Kinds of hardware, as memory is described."""

    CPU = 0
    GPU = 1
    FPGA = 2
    NPU = 3


class OrtDeviceMemoryType(enum.IntEnum):
    """Kinds of a device's memory."""

    DEFAULT = 0
    HOST_ACCESSIBLE = 5


class OrtCompileApiFlags(enum.IntFlag):
    """Flags of onnxruntime's model compiler."""

    NONE = 0
    ERROR_IF_NO_NODES_COMPILED = 1
    ERROR_IF_OUTPUT_FILE_EXISTS = 2


class ModelPackageWriteMode(enum.IntEnum):
    """The way in which onnxruntime writes packages of models."""

    PRESERVE = 0
    DENSE = 1


class OrtDeviceVendorId(enum.IntEnum):
    """Vendors of hardware, by their PCI numbers."""

    NONE = 0x0000
    AMD = 0x1002
    NVIDIA = 0x10DE
    ARM = 0x13B5
    MICROSOFT = 0x1414
    HUAWEI = 0x19E5
    QUALCOMM = 0x5143
    INTEL = 0x8086
