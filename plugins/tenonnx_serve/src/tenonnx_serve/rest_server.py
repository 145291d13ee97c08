"""REST's handlers for the server's own state: shared memory, traces, the log and the login."""

from __future__ import annotations

import hmac
from typing import Final

from tenonnx_serve import login, switches
from tenonnx_serve.errors import BadRequest, Unauthorized, Unsupported
from tenonnx_serve.requests import Parameters
from tenonnx_serve.rest import Answer, Call, Handler, Routes, answer


async def memory_status(call: Call) -> Answer:
    """List regions of shared memory."""
    return answer([region.as_json() for region in call.core.regions.status(*call.path)])


async def memory_register(call: Call) -> Answer:
    """Register a region of shared memory."""
    if not call.local:
        raise BadRequest("shared memory is refused: only clients on this machine may use it")
    said = await call.json()
    call.core.regions.register(
        call.path[0], said.get("key"), said.get("offset", 0), said.get("byte_size")
    )
    return answer({})


async def memory_unregister(call: Call) -> Answer:
    """Unregister a region of shared memory, or all."""
    call.core.regions.unregister(*call.path)
    return answer({})


async def no_device_memory(_: Call) -> Answer:
    """List regions of device memory: there are none."""
    return answer([])


async def device_memory(_: Call) -> Answer:
    """Refuse to register device memory."""
    raise Unsupported("this server does not share memory of CUDA devices")


async def trace_setting(call: Call) -> Answer:
    """Return the trace settings, which clients cannot change."""
    asked = await _changes(call)
    return answer(switches.trace(asked))


async def log_setting(call: Call) -> Answer:
    """Change the log's settings, and return them."""
    asked = await _changes(call)
    return answer(await call.core.log_settings(asked))


async def log_in(call: Call) -> Answer:
    """Set the cookie of the page in a browser, if the form has the token."""
    access = call.core.settings.access
    given, token = login.token_in(await call.json_body(login.MAX_FORM_BYTES)), access.read_token()
    if not token or not hmac.compare_digest(given, token):
        raise Unauthorized("that is not the server's token")
    cookie = login.header_of(token, secure=bool(access.certificate))
    return Answer(b"", [(b"location", b"/"), (b"set-cookie", cookie)], 303)


async def _changes(call: Call) -> Parameters:
    """Return the settings that a client changes; none if it reads them."""
    if call.method != "POST":
        return {}
    call.check_control()
    return await call.json()


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
    ("POST", login.PATH, log_in),
    ("GET", "/v2/logging", log_setting),
    ("POST", "/v2/logging", log_setting),
]


def add_to(routes: Routes) -> None:
    """Add them."""
    for method, path, handler in ROUTES:
        routes.add(method, path, handler)
