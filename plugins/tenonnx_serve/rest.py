"""The ASGI application: routes of REST, and what becomes of errors."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

import tenonnx
from tenonnx_serve import rest_infer
from tenonnx_serve.bodies import Headers, Message, Receive, compressed, read_body
from tenonnx_serve.core import Core, told
from tenonnx_serve.errors import Missing, ServeError, WrongMethod
from tenonnx_serve.model import Model
from tenonnx_serve.repository import READY

Send = Callable[[Message], Awaitable[None]]
JSON = [(b"content-type", b"application/json")]
BINARY = (b"content-type", b"application/octet-stream")


class Answer(NamedTuple):
    """What is sent back."""

    body: bytes
    headers: Sequence[tuple[bytes, bytes]] = JSON
    status: int = 200


class Call(NamedTuple):
    """A request of HTTP.

    Attributes:
        core: The server's.
        path: The parts of its path that a route leaves open.
        headers: By name in small letters; of one that comes twice, the last.
        receive: ASGI's.
    """

    core: Core
    path: Sequence[str]
    headers: Headers
    receive: Receive

    async def body(self) -> bytes | bytearray:
        """Returns the body."""
        return await read_body(self.receive, self.headers, self.core.settings.limits)


Handler = Callable[[Call], Awaitable[Answer]]


class App:
    """The ASGI application of a server.

    Attributes:
        core: What answers.
        routes: By method and path, where ``*`` is any one part of the path; more may be added.
    """

    def __init__(self, core: Core) -> None:
        self.core = core
        self.routes: dict[tuple[str, ...], dict[str, Handler]] = {}
        for method, path, handler in ROUTES:
            self.add(method, path, handler)

    def add(self, method: str, path: str, handler: Handler) -> None:
        """Adds a route."""
        self.routes.setdefault(tuple(path.split("/")[1:]), {})[method] = handler

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answers one request."""
        if scope["type"] != "http":
            return
        headers: Headers = dict(scope["headers"])
        try:
            handler, path = self._route(scope["method"], scope["path"])
            body, more, status = await handler(Call(self.core, path, headers, receive))
        except ServeError as error:
            body, more, status = failure(error)
        except Exception as error:  # whatever it is, the client gets an answer
            body, more, status = failure(told(error))
        lines = [*more, (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": status, "headers": lines})
        await send({"type": "http.response.body", "body": body})

    def _route(self, method: str, path: str) -> tuple[Handler, Sequence[str]]:
        parts = tuple(path.split("/")[1:])
        for pattern, handlers in self.routes.items():
            if len(pattern) == len(parts) and all(
                part in (wanted, part if wanted == "*" else wanted)
                for wanted, part in zip(pattern, parts, strict=True)
            ):
                if (handler := handlers.get(method)) is None:
                    raise WrongMethod(f"{path} takes {' and '.join(handlers)}, not {method}")
                return handler, [p for p, w in zip(parts, pattern, strict=True) if w == "*"]
        raise Missing(f"there is no {path[:80]!r} here")


def answer(said: Any, status: int = 200) -> Answer:
    """Returns an answer in JSON."""
    return Answer(json.dumps(said).encode(), status=status)


def failure(error: ServeError) -> Answer:
    """Returns the answer that says what went wrong."""
    headers = list(JSON)
    if error.retry_after is not None:
        headers.append((b"retry-after", b"%d" % error.retry_after))
    return Answer(json.dumps({"error": str(error)}).encode(), headers, error.status)


async def server_metadata(_: Call) -> Answer:
    """Says what this server is."""
    return answer({"name": "tenonnx", "version": tenonnx.__version__, "extensions": EXTENSIONS})


EXTENSIONS = ["binary_tensor_data"]


async def live(_: Call) -> Answer:
    """Says that the server runs."""
    return answer({"live": True})


async def ready(call: Call) -> Answer:
    """Says whether the server takes requests."""
    is_ready = call.core.ready
    return answer({"ready": is_ready}, 200 if is_ready else 503)


def _model(call: Call) -> Model:
    name, *version = call.path
    return call.core.repository.find(name, version[0] if version else "")


async def model_ready(call: Call) -> Answer:
    """Says whether a model takes requests."""
    model = _model(call)
    is_ready = call.core.repository.entries[model.name].state == READY
    return answer({"name": model.name, "ready": is_ready}, 200 if is_ready else 503)


async def model_metadata(call: Call) -> Answer:
    """Says what a model takes and gives."""
    return answer(_model(call).metadata())


async def infer(call: Call) -> Answer:
    """Runs a model."""
    model, core = _model(call), call.core
    body = await call.body()
    header = call.headers.get(rest_infer.HEADER_LENGTH)
    decoded = rest_infer.decode(model, body, header, core.settings.limits)
    arrays = await core.infer(model, decoded.request)
    pieces, length = rest_infer.encode(model, decoded, arrays)
    whole = b"".join(pieces)
    headers = [BINARY, (b"inference-header-content-length", b"%d" % length)] if length else JSON
    if accepted := call.headers.get(b"accept-encoding"):
        whole, encoding = compressed(whole, accepted)
        if encoding:
            headers = [*headers, (b"content-encoding", encoding)]
    return Answer(whole, headers)


ROUTES: list[tuple[str, str, Handler]] = [
    ("GET", "/v2", server_metadata),
    ("GET", "/v2/health/live", live),
    ("GET", "/v2/health/ready", ready),
    *(
        (method, f"/v2/models/*{version}{rest}", handler)
        for version in ("", "/versions/*")
        for method, rest, handler in (
            ("GET", "", model_metadata),
            ("GET", "/ready", model_ready),
            ("POST", "/infer", infer),
        )
    ),
]
