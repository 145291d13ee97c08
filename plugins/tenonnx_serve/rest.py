"""The ASGI application: finding a route, reading a body, and what becomes of errors."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

from tenonnx_serve.bodies import Headers, Message, Receive, read_body
from tenonnx_serve.core import Core, told
from tenonnx_serve.errors import BadRequest, Missing, ServeError, WrongMethod
from tenonnx_serve.requests import Parameters, shown

Send = Callable[[Message], Awaitable[None]]
JSON = [(b"content-type", b"application/json")]

Header = tuple[bytes, bytes]

HEADERS, ANSWERED = "tenonnx.headers", "tenonnx.answered"
"""What a scope may have more: the headers by name, and a header that every answer is to have."""

PATIENCE = 0.05
"""Seconds after which it is worth looking whether the client is still there."""


class Answer(NamedTuple):
    """What is sent back."""

    body: bytes
    headers: Sequence[tuple[bytes, bytes]] = JSON
    status: int = 200


class Call(NamedTuple):
    """A request of HTTP.

    Attributes:
        core: The server's.
        method: GET or POST.
        path: The parts of its path that a route leaves open.
        headers: By name in small letters; of one that comes twice, the last.
        receive: ASGI's.
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
        """Whether it comes from this machine."""
        return is_local(self.client)

    async def body(self) -> bytes | bytearray:
        """Returns the body."""
        return await read_body(self.receive, self.headers, self.core.settings.limits)

    async def json(self) -> Parameters:
        """Returns the body's JSON object; an empty one of an empty body."""
        return loaded(await self.body() or b"{}")

    def watch(self) -> Watch:
        """Cancels the running task if the client goes away; the body must be read before."""
        return Watch(self.receive)


class Watch:
    """Cancels the task that made it when its client goes away, until ``end`` is called.

    Args:
        receive: ASGI's; nobody else calls it meanwhile.
    """

    __slots__ = ("_receive", "_task", "_timer", "_watcher")

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._task = asyncio.current_task()
        self._watcher: asyncio.Task[None] | None = None
        self._timer = asyncio.get_running_loop().call_later(PATIENCE, self._begin)

    def _begin(self) -> None:
        self._watcher = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        message = await self._receive()
        if message["type"] == "http.disconnect" and self._task is not None:
            self._task.cancel()

    def end(self) -> None:
        """Stops watching."""
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
        """Adds a handler."""
        node = self
        for part in path.split("/")[1:]:
            node = node._below.setdefault(part, Routes())
        node._handlers[method] = handler

    def find(self, method: str, path: str) -> tuple[Handler, list[str]]:
        """Returns a path's handler, and the parts that stand where its route has ``*``.

        Raises:
            Missing: There is none.
            WrongMethod: There is one for another method.
        """
        node, open_parts = self, []
        for part in path.split("/")[1:]:
            if (below := node._below.get(part)) is None or part == "*":
                below = node._below.get("*")
                open_parts.append(part)
            if below is None:
                raise Missing(f"there is no {shown(path)} here")
            node = below
        if (handler := node._handlers.get(method)) is None:
            if not node._handlers:
                raise Missing(f"there is no {shown(path)} here")
            raise WrongMethod(f"{path} takes {' and '.join(node._handlers)}, not {method}")
        return handler, open_parts


class App:
    """The ASGI application of a server.

    Attributes:
        core: What answers.
        routes: More may be added.
    """

    def __init__(self, core: Core, routes: Routes) -> None:
        self.core = core
        self.routes = routes

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answers one request."""
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
            body, more, status = failure(error)
        except Exception as error:  # whatever it is, the client gets an answer
            body, more, status = failure(told(error))
        except asyncio.CancelledError:
            return  # the client went away
        lines = [*more, (b"content-length", b"%d" % len(body))]
        if (line := scope.get(ANSWERED)) is not None:
            lines.append(line)
        await send({"type": "http.response.start", "status": status, "headers": lines})
        await send({"type": "http.response.body", "body": body})


def is_local(address: str) -> bool:
    """Says whether an address is of this machine; a local socket has none."""
    return not address or address == "::1" or address.startswith(("127.", "::ffff:127."))


def loaded(text: bytes | bytearray) -> Parameters:
    """Returns a JSON object.

    Raises:
        BadRequest: It is none.
    """
    try:
        said = json.loads(text.decode())
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"the body is no JSON: {error}") from None
    if not isinstance(said, dict):
        raise BadRequest(f"the body is {shown(said)}; expected a JSON object")
    return said


def answer(said: Any, status: int = 200) -> Answer:
    """Returns an answer in JSON."""
    return Answer(json.dumps(said).encode(), status=status)


def failure(error: ServeError) -> Answer:
    """Returns the answer that says what went wrong."""
    headers = list(JSON)
    if error.retry_after is not None:
        headers.append((b"retry-after", b"%d" % error.retry_after))
    return Answer(json.dumps({"error": str(error)}).encode(), headers, error.status)
