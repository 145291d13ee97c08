"""Bodies of HTTP requests, within limits of size and time."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from tenonnx_serve.errors import BadRequest, BodyMemoryFull, Cancelled, SlowBody, TooLarge
from tenonnx_serve.settings import Limits

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Headers = dict[bytes, bytes]

# zlib's window bits for each encoding; 47 detects zlib's and gzip's headers.
ZLIB_WINDOW_BITS = {b"gzip": 31, b"deflate": 47}

# Bytes that are inflated at once: zlib leaves the interpreter to others meanwhile, but not while it
# joins what it made.
MAX_INFLATED_BYTES = 1 << 20

# Bytes from which on an answer is compressed.
MIN_COMPRESSED_BYTES = 1024


class BodyMemory:
    """The memory for all bodies that are being read.

    Args:
        size: Bytes.
    """

    def __init__(self, size: int) -> None:
        self._left = self._size = size

    def take(self, size: int) -> None:
        """Take bytes.

        Raises:
            BodyMemoryFull: Other bodies have taken them.
        """
        if size > self._left:
            raise BodyMemoryFull(f"the bodies of unfinished requests take {self._size} bytes")
        self._left -= size

    def give(self, size: int) -> None:
        """Give bytes back."""
        self._left += size


async def read_body(
    receive: Receive, headers: Headers, limits: Limits, memory: BodyMemory, most: int = 0
) -> bytes | bytearray:
    """Return a request's body, decompressed to at most ``most`` bytes; 0 for the limits' number.

    Raises:
        TooLarge: It is too large, or its header says so.
        SlowBody: The client takes too long.
        BadRequest: It is not compressed as its header says.
        BodyMemoryFull: Too many bodies are being read.
        Cancelled: The client went away.
    """
    declared = headers.get(b"content-length", b"0")
    if declared.isdigit() and int(declared[:20]) > limits.body:
        raise _too_large(limits.body)
    task, late = asyncio.current_task(), list[bool]()
    timer = asyncio.get_running_loop().call_later(limits.body_seconds, _cancel, task, late)
    try:
        message = await receive()
        body: bytes | bytearray = _piece(message)
        if message.get("more_body"):
            body = await _rest(receive, bytearray(body), limits.body, memory)
    except asyncio.CancelledError:
        if late and task is not None:  # cancelled by the timer, and not by whoever runs the task
            task.uncancel()
            raise SlowBody(f"the request's body took more than {limits.body_seconds:g} s") from None
        raise
    finally:
        timer.cancel()
    if len(body) > limits.body:
        raise _too_large(limits.body)
    encoding = headers.get(b"content-encoding", b"identity")
    if encoding == b"identity":
        return body
    # As much as the body may become: its size is known only when it is inflated.
    most = min(most or limits.body, limits.body)
    memory.take(most)
    try:  # in a thread, as zlib leaves the interpreter to others
        return await asyncio.to_thread(decompressed, body, encoding, most)
    finally:
        memory.give(most)


def _cancel(task: asyncio.Task[Any] | None, late: list[bool]) -> None:
    late.append(True)
    if task is not None:
        task.cancel()


async def _rest(receive: Receive, body: bytearray, most: int, memory: BodyMemory) -> bytearray:
    taken = 0
    try:
        while True:
            memory.take(len(body) - taken)
            taken = len(body)
            message = await receive()
            body += _piece(message)
            if len(body) > most:
                raise _too_large(most)
            if not message.get("more_body"):
                return body
    finally:
        memory.give(taken)


def _piece(message: Message) -> bytes:
    if message["type"] == "http.disconnect":
        raise Cancelled("the client went away")
    piece: bytes = message.get("body", b"")
    return piece


def _too_large(most: int) -> TooLarge:
    return TooLarge(f"the request's body is larger than the limit of {most} bytes")


def decompressed(body: bytes | bytearray, encoding: bytes, most: int) -> bytearray:
    """Return a decompressed body; hardly more than ``most`` bytes are made.

    Raises:
        BadRequest: It is damaged, or the encoding is unknown.
        TooLarge: It has more bytes.
    """
    if (window := ZLIB_WINDOW_BITS.get(encoding.strip().lower())) is None:
        raise BadRequest(f"Content-Encoding is {encoding!r}; expected gzip or deflate")
    machine, whole, view = zlib.decompressobj(window), bytearray(), memoryview(body)
    try:
        for start in range(0, len(body), MAX_INFLATED_BYTES):
            left: bytes | memoryview = view[start : start + MAX_INFLATED_BYTES]
            while len(left):
                whole += machine.decompress(left, MAX_INFLATED_BYTES)
                if len(whole) > most:
                    raise _too_large(most)
                left = machine.unconsumed_tail
    except zlib.error as error:
        raise BadRequest(f"the body is not valid {encoding.decode('ascii')}: {error}") from None
    if not machine.eof:
        raise BadRequest("the compressed body ends too early")
    return whole


def compressed(body: bytes, accepted: bytes) -> tuple[bytes, bytes]:
    """Return a body in an encoding that the client accepts, and that encoding if there is one.

    A small body is not compressed: it is one packet either way.
    """
    if len(body) < MIN_COMPRESSED_BYTES:
        return body, b""
    for encoding in accepted.lower().split(b","):
        if (window := ZLIB_WINDOW_BITS.get(encoding.strip())) is not None:
            machine = zlib.compressobj(1, wbits=31 if window == 31 else 15)
            return machine.compress(body) + machine.flush(), encoding.strip()
    return body, b""
