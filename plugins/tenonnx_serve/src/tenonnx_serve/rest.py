"""The ASGI application: finds a route, reads the body, and turns errors into answers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from tenonnx_serve.bodies import Headers, Message, Receive, read_body
from tenonnx_serve.core import Core, client_error
from tenonnx_serve.errors import BadRequest, Missing, ServeError, TooLarge, WrongMethod
from tenonnx_serve.openai import errors as openai_errors
from tenonnx_serve.requests import Parameters, quoted

Send = Callable[[Message], Awaitable[None]]
JSON = [(b"content-type", b"application/json")]

Header = tuple[bytes, bytes]

# Keys that a scope may have: the headers by name, and a header to add to every answer.
HEADERS, ANSWERED = "tenonnx.headers", "tenonnx.answered"

# The most bytes of a request about the server's own state.
MAX_JSON_BYTES = 1 << 16

# Seconds after which to check whether the client is still connected.
DISCONNECT_CHECK_SECONDS = 0.05


class Pieces(Protocol):
    """A body that is sent as it comes."""

    def __aiter__(self) -> AsyncIterator[bytes]:
        """Return its pieces."""

    async def aclose(self) -> None:
        """End it, whether it was sent or not."""


class Answer(NamedTuple):
    """An answer."""

    body: bytes | Pieces
    headers: Sequence[tuple[bytes, bytes]] = JSON
    status: int = 200


class Call(NamedTuple):
    """An HTTP request.

    Attributes:
        core: The server's.
        method: GET or POST.
        path: The parts of its path that match ``*`` in the route.
        headers: By lower-case name; the last one if a name repeats.
        receive: ASGI's function.
        client: The client's address, if it has one.
    """

    core: Core
    method: str
    path: Sequence[str]
    headers: Headers
    receive: Receive
    client: str

    @property
    def local(self) -> bool:
        """Whether the request comes from this machine."""
        return is_local(self.client)

    def check_control(self) -> None:
        """Refuse a client that may not load models or change settings."""
        self.core.controls.check(self.headers.get(b"authorization"))

    async def body(self, inflated: int = 0) -> bytes | bytearray:
        """Return the body, inflated to at most so many bytes; 0 for the limit of all bodies."""
        limits, memory = self.core.settings.limits, self.core.body_memory
        return await read_body(self.receive, self.headers, limits, memory, inflated)

    async def json_body(self, most: int) -> bytes | bytearray:
        """Return a body that is JSON of at most so many bytes.

        Raises:
            TooLarge: It has more.
        """
        body = await self.body(most)
        if len(body) > most:
            raise TooLarge(f"the request has {len(body)} bytes of JSON; expected at most {most}")
        return body

    async def json(self) -> Parameters:
        """Return the body's JSON object; an empty object for an empty body."""
        return loaded(await self.json_body(MAX_JSON_BYTES) or b"{}")

    def watch(self) -> DisconnectWatch:
        """Cancel the running task if the client disconnects; read the body before."""
        return DisconnectWatch(self.receive)


class DisconnectWatch:
    """Cancels its creator's task when the client disconnects, until ``end`` is called.

    Args:
        receive: ASGI's function; nobody else calls it meanwhile.
    """

    __slots__ = ("_receive", "_task", "_timer", "_watcher")

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._task = asyncio.current_task()
        self._watcher: asyncio.Task[None] | None = None
        self._timer = asyncio.get_running_loop().call_later(DISCONNECT_CHECK_SECONDS, self._begin)

    def _begin(self) -> None:
        self._watcher = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        message = await self._receive()
        if message["type"] == "http.disconnect" and self._task is not None:
            self._task.cancel()

    def end(self) -> None:
        """Stop watching."""
        self._timer.cancel()
        if self._watcher is not None:
            self._watcher.cancel()


Handler = Callable[[Call], Awaitable[Answer]]


class Routes:
    """Handlers by method and path, where ``*`` is any one part of the path."""

    def __init__(self) -> None:
        self._below: dict[str, Routes] = {}
        self._handlers: dict[str, Handler] = {}

    def add(self, method: str, path: str, handler: Handler) -> None:
        """Add a handler."""
        node = self
        for part in path.split("/")[1:]:
            node = node._below.setdefault(part, Routes())
        node._handlers[method] = handler

    def find(self, method: str, path: str) -> tuple[Handler, list[str]]:
        """Return a path's handler, and the parts of the path that match ``*``.

        Raises:
            Missing: No handler has this path.
            WrongMethod: A handler has this path, for another method.
        """
        node, open_parts = self, []
        for part in path.split("/")[1:]:
            if (below := node._below.get(part)) is None or part == "*":
                below = node._below.get("*")
                open_parts.append(part)
            if below is None:
                raise Missing(f"this server has no path {quoted(path)}")
            node = below
        if (handler := node._handlers.get(method)) is None:
            if not node._handlers:
                raise Missing(f"this server has no path {quoted(path)}")
            raise WrongMethod(f"{path} takes {' and '.join(node._handlers)}, not {method}")
        return handler, open_parts


class App:
    """The ASGI application of a server.

    Attributes:
        core: The server's core.
        routes: The handlers; more may be added.
    """

    def __init__(self, core: Core, routes: Routes) -> None:
        self.core = core
        self.routes = routes

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        headers: Headers = scope.get(HEADERS) or dict(scope["headers"])
        try:
            method, client = scope["method"], scope["client"]
            handler, path = self.routes.find(method, scope["path"])
            address = client[0] if client else ""
            call = Call(self.core, method, path, headers, receive, address)
            body, more, status = await handler(call)
        except ServeError as error:
            body, more, status = failure(error, scope["path"])
        except Exception as error:  # the client gets an answer to any error
            body, more, status = failure(client_error(error), scope["path"])
        except asyncio.CancelledError:
            return  # the client has disconnected
        lines = list(more)
        if (line := scope.get(ANSWERED)) is not None:
            lines.append(line)
        start = {"type": "http.response.start", "status": status, "headers": lines}
        if isinstance(body, bytes):
            lines.append((b"content-length", b"%d" % len(body)))
            await send(start)
            await send({"type": "http.response.body", "body": body})
        else:
            await _send(start, body, send, self.core.settings.limits.idle_seconds)


async def _send(start: Message, body: Pieces, send: Send, seconds: float) -> None:
    """Send a body as it comes, to a client that takes no longer to read any of it."""
    async with contextlib.aclosing(body):
        try:
            await send(start)
            async for piece in body:
                async with asyncio.timeout(seconds):
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
        except (asyncio.CancelledError, TimeoutError):
            return  # the client went away, or might as well
        await send({"type": "http.response.body", "body": b""})


def is_local(address: str) -> bool:
    """Return whether an address is this machine's; a local socket has none."""
    return not address or address == "::1" or address.startswith(("127.", "::ffff:127."))


def loaded(text: bytes | bytearray) -> Parameters:
    """Return a JSON object.

    Raises:
        BadRequest: It is not a JSON object.
    """
    try:
        said = msgspec.json.decode(text)
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"the body is not JSON: {error}") from None
    if not isinstance(said, dict):
        raise BadRequest(f"the body is {quoted(said)}; expected a JSON object")
    return said


def answer(said: Any, status: int = 200) -> Answer:
    """Return a JSON answer."""
    return Answer(encoded(said), status=status)


def encoded(said: Any) -> bytes:
    """Return JSON; NaN and infinities are ``null``."""
    text: bytes = msgspec.json.encode(said)
    return text


def failure(error: ServeError, path: str) -> Answer:
    """Return the answer to an error, in the form that clients of a path expect."""
    headers = list(JSON)
    if error.retry_after is not None:
        headers.append((b"retry-after", b"%d" % error.retry_after))
    if error.closes:
        headers.append((b"connection", b"close"))
    return Answer(failure_body(error, path), headers, error.status)


def failure_body(error: ServeError, path: str) -> bytes:
    """Return the body of such an answer."""
    said = (
        openai_errors.as_json(error)
        if path.startswith(("/v1/", "/tokenize", "/detokenize"))
        else {"error": str(error)}
    )
    return encoded(said)
