"""REST's handlers for the server's own state: shared memory, traces and the log."""

from __future__ import annotations

from typing import Final

from tenonnx_serve import switches
from tenonnx_serve.errors import BadRequest, Unsupported
from tenonnx_serve.rest import Answer, Call, Handler, Routes, answer


async def memory_status(call: Call) -> Answer:
    """Lists regions of shared memory."""
    return answer([region.told() for region in call.core.regions.status(*call.path)])


async def memory_register(call: Call) -> Answer:
    """Registers a region of shared memory."""
    if not call.local:
        raise BadRequest("shared memory is refused: only clients on this machine may use it")
    said = await call.json()
    call.core.regions.register(
        call.path[0], said.get("key"), said.get("offset", 0), said.get("byte_size")
    )
    return answer({})


async def memory_unregister(call: Call) -> Answer:
    """Unregisters a region of shared memory, or all."""
    call.core.regions.unregister(*call.path)
    return answer({})


async def no_device_memory(_: Call) -> Answer:
    """Lists regions of device memory: there are none."""
    return answer([])


async def device_memory(_: Call) -> Answer:
    """Refuses to register device memory."""
    raise Unsupported("this server does not share memory of CUDA devices")


async def trace_setting(call: Call) -> Answer:
    """Returns the trace settings, which clients cannot change."""
    asked = await call.json() if call.method == "POST" else {}
    return answer(switches.trace(asked))


async def log_setting(call: Call) -> Answer:
    """Changes the log's settings, and returns them."""
    asked = await call.json() if call.method == "POST" else {}
    return answer(await call.core.log_settings(asked))


ROUTES: Final[list[tuple[str, str, Handler]]] = [
    ("GET", "/v2/systemsharedmemory/status", memory_status),
    ("GET", "/v2/systemsharedmemory/region/*/status", memory_status),
    ("POST", "/v2/systemsharedmemory/region/*/register", memory_register),
    ("POST", "/v2/systemsharedmemory/unregister", memory_unregister),
    ("POST", "/v2/systemsharedmemory/region/*/unregister", memory_unregister),
    ("GET", "/v2/cudasharedmemory/status", no_device_memory),
    ("GET", "/v2/cudasharedmemory/region/*/status", device_memory),
    ("POST", "/v2/cudasharedmemory/region/*/register", device_memory),
    ("POST", "/v2/cudasharedmemory/unregister", no_device_memory),
    ("POST", "/v2/cudasharedmemory/region/*/unregister", no_device_memory),
    *(
        (method, f"/v2{model}/trace/setting", trace_setting)
        for method in ("GET", "POST")
        for model in ("", "/models/*")
    ),
    ("GET", "/v2/logging", log_setting),
    ("POST", "/v2/logging", log_setting),
]


def add_to(routes: Routes) -> None:
    """Adds them."""
    for method, path, handler in ROUTES:
        routes.add(method, path, handler)
