"""REST's handlers for each path of the protocol."""

from __future__ import annotations

from typing import Final

from tenonnx_serve import config, facts, rest_infer, rest_server
from tenonnx_serve.batching import Queue
from tenonnx_serve.bodies import compressed
from tenonnx_serve.openai import routes as openai_routes
from tenonnx_serve.repository import READY, refuse_parameters
from tenonnx_serve.rest import JSON, Answer, Call, Handler, Routes, answer

BINARY: Final = (b"content-type", b"application/octet-stream")


async def server_metadata(_: Call) -> Answer:
    """Return the server's metadata."""
    return answer(facts.server())


async def live(_: Call) -> Answer:
    """Return whether the server is live."""
    return answer({"live": True})


async def ready(call: Call) -> Answer:
    """Return whether the server is ready."""
    is_ready = call.core.ready
    return answer({"ready": is_ready}, 200 if is_ready else 503)


def _queue(call: Call) -> Queue:
    name, *version = call.path
    return call.core.repository.find(name, version[0] if version else "")


async def model_ready(call: Call) -> Answer:
    """Return whether a model is ready."""
    name, *version = call.path
    call.core.repository.version(name, *version)
    is_ready = call.core.repository.entries[name].state == READY
    return answer({"name": name, "ready": is_ready}, 200 if is_ready else 503)


async def model_metadata(call: Call) -> Answer:
    """Return a model's metadata."""
    return answer(facts.model(call.core.repository, _queue(call).model))


async def model_config(call: Call) -> Answer:
    """Return a model's configuration."""
    return answer(config.as_json(_queue(call).model.config))


async def model_statistics(call: Call) -> Answer:
    """Return the statistics of one model or of all."""
    return answer(await facts.statistics(call.core, *call.path))


async def index(call: Call) -> Answer:
    """List the models of the repository."""
    ready_only = (await call.json()).get("ready") is True
    await call.core.repository.refresh()
    return answer(call.core.repository.index(ready_only=ready_only))


async def load(call: Call) -> Answer:
    """Load a model."""
    call.check_control()
    refuse_parameters((await call.json()).get("parameters"))
    await call.core.control.load(call.path[0])
    return answer({})


async def unload(call: Call) -> Answer:
    """Unload a model."""
    call.check_control()
    await call.json()
    await call.core.control.unload(call.path[0])
    return answer({})


async def infer(call: Call) -> Answer:
    """Run a model."""
    queue = _queue(call)
    model, limits, regions = queue.model, call.core.settings.limits, call.core.regions
    header = call.headers.get(rest_infer.HEADER_LENGTH)
    body = await call.body(0 if header else limits.json)  # without it, all is JSON
    pieces, length = await call.core.infer(
        queue,
        len(body),
        lambda: rest_infer.decode(model, body, header, limits, regions),
        lambda request, arrays: rest_infer.encode(model, request, arrays, regions),
        call.watch,
    )
    whole = b"".join(pieces)
    headers = [BINARY, (b"inference-header-content-length", b"%d" % length)] if length else JSON
    if accepted := call.headers.get(b"accept-encoding"):
        whole, encoding = compressed(whole, accepted)
        if encoding:
            headers = [*headers, (b"content-encoding", encoding)]
    return Answer(whole, headers)


OF_SERVER: Final[list[tuple[str, str, Handler]]] = [
    ("GET", "/v2", server_metadata),
    ("GET", "/v2/health/live", live),
    ("GET", "/v2/health/ready", ready),
    ("GET", "/v2/models/stats", model_statistics),
    ("POST", "/v2/repository/index", index),
    ("POST", "/v2/repository/models/*/load", load),
    ("POST", "/v2/repository/models/*/unload", unload),
]

OF_MODEL: Final[list[tuple[str, str, Handler]]] = [
    ("GET", "", model_metadata),
    ("GET", "/config", model_config),
    ("GET", "/ready", model_ready),
    ("GET", "/stats", model_statistics),
    ("POST", "/infer", infer),
]


def routes() -> Routes:
    """Return the protocol's routes."""
    found = Routes()
    for method, path, handler in OF_SERVER:
        found.add(method, path, handler)
    for method, path, handler in OF_MODEL:
        found.add(method, f"/v2/models/*{path}", handler)
        found.add(method, f"/v2/models/*/versions/*{path}", handler)
    rest_server.add_to(found)
    openai_routes.add_to(found)
    return found
