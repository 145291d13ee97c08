"""Remote calls between the supervisor and a worker: JSON over a stream socket, both ways.

A frame is its length (4 bytes, little-endian) and a JSON object: ``{"number", "call", "given"}``
asks, ``{"number", "value"}`` or ``{"number", "error"}`` answers. Either side may ask at any time,
and answers come in any order. When one side dies the other reads the end of the stream.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from tenonnx import errors as of_tenonnx
from tenonnx.errors import Fail, TenonnxError
from tenonnx_serve import errors as of_requests
from tenonnx_serve.errors import ServeError

logger = logging.getLogger("tenonnx.serve")

Handler = Callable[..., Awaitable[Any]]

# The largest frame in bytes; a client's parameters to load a model are far smaller.
MAX_FRAME = 64 << 20


class ChannelClosed(ConnectionError):
    """The other side has gone."""


class Channel:
    """One end of a channel.

    Args:
        handlers: The coroutine functions that the other side may call, by name. The other side's
            ``call`` raises their exceptions: a ``TenonnxError`` or a ``ServeError`` with its
            class, others as ``Fail``.
    """

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        handlers: Mapping[str, Handler],
    ) -> None:
        self._reader, self._writer = reader, writer
        self._handlers = handlers
        self._numbers = itertools.count()
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._answering: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Answer the other side until it closes the stream or dies."""
        try:
            while True:
                length = int.from_bytes(await self._reader.readexactly(4), "little")
                if length > MAX_FRAME:
                    raise Fail(f"a frame has {length:,} bytes; expected at most {MAX_FRAME:,}")
                self._take(json.loads(await self._reader.readexactly(length)))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.close()

    @property
    def closed(self) -> bool:
        """Whether the other side has gone."""
        return self._writer.is_closing()

    def close(self) -> None:
        """End the stream. Pending calls raise ``ChannelClosed``."""
        self._writer.close()
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(ChannelClosed("the other process has gone"))
        self._waiting.clear()

    async def call(self, method: str, /, **given: Any) -> Any:
        """Return the result of the other side's handler of that name.

        Raises:
            TenonnxError, ServeError: Raised by the handler.
            ChannelClosed: The other side has gone, before or during the call.
        """
        number = next(self._numbers)
        future = self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            self._send({"number": number, "call": method, "given": given})
            return await future
        finally:
            self._waiting.pop(number, None)

    def _send(self, message: dict[str, Any]) -> None:
        if self._writer.is_closing():
            raise ChannelClosed("the other process has gone")
        text = json.dumps(message).encode()
        if len(text) > MAX_FRAME:
            raise Fail(f"a message has {len(text):,} bytes; expected at most {MAX_FRAME:,}")
        self._writer.write(len(text).to_bytes(4, "little") + text)

    def _take(self, message: dict[str, Any]) -> None:
        if "call" in message:
            task = asyncio.ensure_future(self._answer(message))
            self._answering.add(task)
            task.add_done_callback(self._answering.discard)
            return
        future = self._waiting.get(message["number"])
        if future is None or future.done():  # the caller no longer waits
            return
        if "error" in message:
            future.set_exception(_raised(message["error"]))
        else:
            future.set_result(message["value"])

    async def _answer(self, message: dict[str, Any]) -> None:
        answer = {"number": message["number"]}
        try:
            handler = self._handlers[message["call"]]
            answer["value"] = await handler(**message["given"])
        except Exception as error:
            if not isinstance(error, TenonnxError | ServeError):
                logger.exception("%s failed", message["call"])
            answer["error"] = _described(error)
        with contextlib.suppress(ChannelClosed):  # the other side has gone
            self._send(answer)


def _described(error: Exception) -> dict[str, Any]:
    # A class of a private module becomes its nearest base that both sides know.
    for kind in type(error).__mro__:
        for module in (of_tenonnx, of_requests):
            if getattr(module, kind.__name__, None) is kind:
                hint = getattr(error, "hint", None)
                return {"kind": kind.__name__, "message": str(error.args[0]), "hint": hint}
    return {"kind": "Fail", "message": f"{type(error).__name__}: {error}", "hint": None}


def _raised(described: dict[str, Any]) -> TenonnxError | ServeError:
    name, message = described["kind"], described["message"]
    if (kind := getattr(of_tenonnx, name, None)) is not None:
        error: TenonnxError = kind(message, hint=described["hint"])
        return error
    refused: ServeError = getattr(of_requests, name)(message)
    return refused
