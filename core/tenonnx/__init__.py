"""tenonnx: an ONNX runtime in which every moving part is a plugin and every weight exists once.

``import tenonnx as ort`` and go on as with onnxruntime::

    session = ort.InferenceSession("model.onnx", providers=["CPUExecutionProvider"])
    outputs = session.run(None, {"x": x})
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tenonnx import lazy_modules
from tenonnx.errors import (
    DeviceReset,
    EngineError,
    EPFail,
    Fail,
    InvalidArgument,
    InvalidGraph,
    InvalidProtobuf,
    ModelLoadCanceled,
    ModelLoaded,
    ModelRequiresCompilation,
    NoModel,
    NoSuchFile,
    NotFound,
    NotImplemented,  # noqa: A004 - onnxruntime's name
    NotSupported,
    PluginError,
    RuntimeException,
    TenonnxError,
)

lazy_modules.install()

if TYPE_CHECKING:
    from tenonnx.custom_ops import operator
    from tenonnx.formats import Format
    from tenonnx.hookspecs import hookimpl
    from tenonnx.interface.adapter import AdapterFormat, LoraAdapter
    from tenonnx.interface.assigned import OrtEpAssignedNode, OrtEpAssignedSubgraph
    from tenonnx.interface.device_enums import (
        ModelPackageWriteMode,
        OrtAllocatorType,
        OrtCompileApiFlags,
        OrtDeviceMemoryType,
        OrtDeviceVendorId,
        OrtExecutionProviderDevicePolicy,
        OrtHardwareDeviceType,
        OrtMemoryInfoDeviceType,
        OrtMemType,
        OrtSparseFormat,
    )
    from tenonnx.interface.devices import (
        OrtArenaCfg,
        OrtDevice,
        OrtEpDevice,
        OrtHardwareDevice,
        OrtMemoryInfo,
    )
    from tenonnx.interface.enums import ExecutionMode, ExecutionOrder, GraphOptimizationLevel
    from tenonnx.interface.io_binding import IOBinding, SessionIOBinding
    from tenonnx.interface.metadata import ModelMetadata
    from tenonnx.interface.ort_value import OrtValue, OrtValueVector, copy_tensors
    from tenonnx.interface.refused import (
        ModelCompiler,
        ModelPackage,
        ModelPackageComponentContext,
        ModelPackageContext,
        ModelPackageOptions,
        OrtEpContextData,
        OrtEpContextDataBuffer,
        OrtExternalInitializerInfo,
        OrtSyncStream,
    )
    from tenonnx.interface.run_options import RunOptions
    from tenonnx.interface.runtime_info import (
        create_and_register_allocator,
        create_and_register_allocator_v2,
        disable_telemetry_events,
        enable_telemetry_events,
        get_all_providers,
        get_available_providers,
        get_build_info,
        get_device,
        get_ep_devices,
        get_version_string,
        has_collective_ops,
        preload_dlls,
        print_debug_info,
        register_execution_provider_library,
        set_default_logger_callback,
        set_default_logger_severity,
        set_default_logger_verbosity,
        set_global_thread_pool_sizes,
        unregister_execution_provider_library,
    )
    from tenonnx.interface.signature import NodeArg
    from tenonnx.interface.sparse_tensor import SparseTensor
    from tenonnx.operators import Array, Kernel, Namespace, OperatorTable
    from tenonnx.options import SessionOptions
    from tenonnx.planning.plan import Observer, Plan
    from tenonnx.plugins.manager import PluginSet, default_plugins
    from tenonnx.provider import HOST, Body, Device, Provider, Segment, Step
    from tenonnx.seeds import set_seed
    from tenonnx.session import InferenceSession
    from tenonnx.transforms import Transform, TransformContext
    from tenonnx.weights.registry import Weight, WeightRegistry, default_registry
    from tenonnx.weights.tensors import WeightTensor

# Where each public name lives; a module is imported when one of its names is first used, so
# that `import tenonnx` and plugins that only need a decorator stay cheap.
_HOMES = {
    "interface.adapter": (
        "AdapterFormat",
        "LoraAdapter",
    ),
    "interface.assigned": (
        "OrtEpAssignedNode",
        "OrtEpAssignedSubgraph",
    ),
    "custom_ops": ("operator",),
    "interface.devices": (
        "OrtArenaCfg",
        "OrtDevice",
        "OrtEpDevice",
        "OrtHardwareDevice",
        "OrtMemoryInfo",
    ),
    "interface.enums": (
        "ExecutionMode",
        "ExecutionOrder",
        "GraphOptimizationLevel",
    ),
    "interface.device_enums": (
        "ModelPackageWriteMode",
        "OrtAllocatorType",
        "OrtCompileApiFlags",
        "OrtDeviceMemoryType",
        "OrtDeviceVendorId",
        "OrtExecutionProviderDevicePolicy",
        "OrtHardwareDeviceType",
        "OrtMemType",
        "OrtMemoryInfoDeviceType",
        "OrtSparseFormat",
    ),
    "formats": ("Format",),
    "hookspecs": ("hookimpl",),
    "interface.io_binding": ("IOBinding", "SessionIOBinding"),
    "interface.metadata": ("ModelMetadata",),
    "operators": (
        "Array",
        "Kernel",
        "Namespace",
        "OperatorTable",
    ),
    "options": ("SessionOptions",),
    "interface.ort_value": (
        "OrtValue",
        "OrtValueVector",
        "copy_tensors",
    ),
    "planning.plan": (
        "Observer",
        "Plan",
    ),
    "plugins.manager": (
        "PluginSet",
        "default_plugins",
    ),
    "provider": (
        "HOST",
        "Body",
        "Device",
        "Provider",
        "Segment",
        "Step",
    ),
    "interface.refused": (
        "ModelCompiler",
        "ModelPackage",
        "ModelPackageComponentContext",
        "ModelPackageContext",
        "ModelPackageOptions",
        "OrtEpContextData",
        "OrtEpContextDataBuffer",
        "OrtExternalInitializerInfo",
        "OrtSyncStream",
    ),
    "interface.run_options": ("RunOptions",),
    "interface.runtime_info": (
        "create_and_register_allocator",
        "create_and_register_allocator_v2",
        "disable_telemetry_events",
        "enable_telemetry_events",
        "get_all_providers",
        "get_available_providers",
        "get_build_info",
        "get_device",
        "get_ep_devices",
        "get_version_string",
        "has_collective_ops",
        "preload_dlls",
        "print_debug_info",
        "register_execution_provider_library",
        "set_default_logger_callback",
        "set_default_logger_severity",
        "set_default_logger_verbosity",
        "set_global_thread_pool_sizes",
        "unregister_execution_provider_library",
    ),
    "seeds": ("set_seed",),
    "session": ("InferenceSession",),
    "interface.signature": ("NodeArg",),
    "interface.sparse_tensor": ("SparseTensor",),
    "weights.tensors": ("WeightTensor",),
    "transforms": (
        "Transform",
        "TransformContext",
    ),
    "weights.registry": (
        "Weight",
        "WeightRegistry",
        "default_registry",
    ),
}
_MODULE_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "HOST",
    "AdapterFormat",
    "Array",
    "Body",
    "Device",
    "DeviceReset",
    "EPFail",
    "EngineError",
    "ExecutionMode",
    "ExecutionOrder",
    "Fail",
    "Format",
    "GraphOptimizationLevel",
    "IOBinding",
    "InferenceSession",
    "InvalidArgument",
    "InvalidGraph",
    "InvalidProtobuf",
    "Kernel",
    "LoraAdapter",
    "ModelCompiler",
    "ModelLoadCanceled",
    "ModelLoaded",
    "ModelMetadata",
    "ModelPackage",
    "ModelPackageComponentContext",
    "ModelPackageContext",
    "ModelPackageOptions",
    "ModelPackageWriteMode",
    "ModelRequiresCompilation",
    "Namespace",
    "NoModel",
    "NoSuchFile",
    "NodeArg",
    "NotFound",
    "NotImplemented",
    "NotSupported",
    "Observer",
    "OperatorTable",
    "OrtAllocatorType",
    "OrtArenaCfg",
    "OrtCompileApiFlags",
    "OrtDevice",
    "OrtDeviceMemoryType",
    "OrtDeviceVendorId",
    "OrtEpAssignedNode",
    "OrtEpAssignedSubgraph",
    "OrtEpContextData",
    "OrtEpContextDataBuffer",
    "OrtEpDevice",
    "OrtExecutionProviderDevicePolicy",
    "OrtExternalInitializerInfo",
    "OrtHardwareDevice",
    "OrtHardwareDeviceType",
    "OrtMemType",
    "OrtMemoryInfo",
    "OrtMemoryInfoDeviceType",
    "OrtSparseFormat",
    "OrtSyncStream",
    "OrtValue",
    "OrtValueVector",
    "Plan",
    "PluginError",
    "PluginSet",
    "Provider",
    "RunOptions",
    "RuntimeException",
    "Segment",
    "SessionIOBinding",
    "SessionOptions",
    "SparseTensor",
    "Step",
    "TenonnxError",
    "Transform",
    "TransformContext",
    "Weight",
    "WeightRegistry",
    "WeightTensor",
    "copy_tensors",
    "create_and_register_allocator",
    "create_and_register_allocator_v2",
    "default_plugins",
    "default_registry",
    "disable_telemetry_events",
    "enable_telemetry_events",
    "get_all_providers",
    "get_available_providers",
    "get_build_info",
    "get_device",
    "get_ep_devices",
    "get_version_string",
    "has_collective_ops",
    "hookimpl",
    "operator",
    "preload_dlls",
    "print_debug_info",
    "register_execution_provider_library",
    "set_default_logger_callback",
    "set_default_logger_severity",
    "set_default_logger_verbosity",
    "set_global_thread_pool_sizes",
    "set_seed",
    "unregister_execution_provider_library",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from tenonnx.installed import release

        return release()
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'tenonnx' has no attribute {name!r}")
    from tenonnx.collector import paused

    with paused():
        value = getattr(importlib.import_module(f"tenonnx.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
