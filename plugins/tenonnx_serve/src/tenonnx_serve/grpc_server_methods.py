"""gRPC's methods on the server's own state: shared memory, traces and the log."""

from __future__ import annotations

from typing import Any, Final

from tritonclient.grpc import service_pb2 as messages

from tenonnx_serve import switches
from tenonnx_serve.core import Core
from tenonnx_serve.errors import Unsupported


async def memory_status(core: Core, request: Any) -> Any:
    """List regions of shared memory."""
    found = {region.name: region.as_json() for region in core.regions.status(request.name)}
    return messages.SystemSharedMemoryStatusResponse(regions=found)


async def memory_register(core: Core, request: Any) -> Any:
    """Register a region of shared memory."""
    core.regions.register(request.name, request.key, request.offset, request.byte_size)
    return messages.SystemSharedMemoryRegisterResponse()


async def memory_unregister(core: Core, request: Any) -> Any:
    """Unregister a region of shared memory, or all."""
    core.regions.unregister(request.name)
    return messages.SystemSharedMemoryUnregisterResponse()


async def device_memory_status(_: Core, __: Any) -> Any:
    """List regions of device memory: there are none."""
    return messages.CudaSharedMemoryStatusResponse()


async def device_memory_register(_: Core, __: Any) -> Any:
    """Refuse to register device memory."""
    raise Unsupported("this server does not share memory of CUDA devices")


async def device_memory_unregister(_: Core, __: Any) -> Any:
    """Unregister device memory: there is none."""
    return messages.CudaSharedMemoryUnregisterResponse()


async def trace_setting(_: Core, request: Any) -> Any:
    """Return the trace settings, which clients cannot change."""
    asked = {}
    for key, setting in request.settings.items():
        values = list(setting.value)
        asked[key] = (values if key == "trace_level" else "".join(values)) if values else None
    found = switches.trace(asked)
    lists = {key: value if isinstance(value, list) else [value] for key, value in found.items()}
    return messages.TraceSettingResponse(
        settings={key: {"value": value} for key, value in lists.items()}
    )


async def log_setting(core: Core, request: Any) -> Any:
    """Change the log's settings, and return them."""
    asked = {
        key: getattr(setting, choice)
        for key, setting in request.settings.items()
        if (choice := setting.WhichOneof("parameter_choice"))
    }
    response = messages.LogSettingsResponse()
    for key, value in (await core.log_settings(asked)).items():
        setting = response.settings[key]
        if isinstance(value, bool):
            setting.bool_param = value
        elif isinstance(value, int):
            setting.uint32_param = value
        else:
            setting.string_param = value
    return response


# Handlers by the protocol's name.
METHODS: Final = {
    "SystemSharedMemoryStatus": memory_status,
    "SystemSharedMemoryRegister": memory_register,
    "SystemSharedMemoryUnregister": memory_unregister,
    "CudaSharedMemoryStatus": device_memory_status,
    "CudaSharedMemoryRegister": device_memory_register,
    "CudaSharedMemoryUnregister": device_memory_unregister,
    "TraceSetting": trace_setting,
    "LogSettings": log_setting,
}

# Methods for clients on the server's own machine only.
LOCAL: Final = frozenset({"SystemSharedMemoryRegister"})
