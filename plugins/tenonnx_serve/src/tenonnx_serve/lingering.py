"""The end of a connection whose client still sends.

A system resets a connection that is closed while data wait to be read. The client's write then
fails, and a client that reads only after it has written all never sees the answer. Therefore the
server tells the end of its answer, and reads and drops data for a while before it closes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

# Seconds after which a connection is closed though its client still sends.
LINGER_SECONDS: Final = 10.0

# Bytes that are dropped at most, as many as a body may have by default.
LINGER_BYTES: Final = 256 << 20


class LingeringTransport:
    """A transport whose first ``close`` drops unread data of the client until it ends.

    uvicorn closes the transport itself after an answer, so this has the methods that it calls.

    Args:
        transport: The connection's transport.
        is_unread: Returns whether the server has answered a request that has not come whole.

    Attributes:
        lingering: Whether received data are to be dropped, by ``drop``.
    """

    def __init__(self, transport: asyncio.Transport, is_unread: Callable[[], bool]) -> None:
        self.write = transport.write
        self.abort = transport.abort
        self.pause_reading = transport.pause_reading
        self.resume_reading = transport.resume_reading
        self.get_write_buffer_size = transport.get_write_buffer_size
        self.lingering = False
        self._transport = transport
        self._is_unread = is_unread
        self._timer: asyncio.TimerHandle | None = None
        self._left = LINGER_BYTES

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return a fact about the connection."""
        return self._transport.get_extra_info(name, default)

    def is_closing(self) -> bool:
        """Return whether the connection is closed or lingers."""
        return self.lingering or self._transport.is_closing()

    def close(self) -> None:
        """Close the connection; the first time, only once the client has sent all or too much."""
        if self.is_closing() or not self._is_unread():
            self._transport.close()
            return
        self.lingering = True
        self._timer = asyncio.get_running_loop().call_later(LINGER_SECONDS, self._transport.close)
        if self._transport.can_write_eof():  # TLS has no such end
            self._transport.write_eof()
        self._transport.resume_reading()

    def drop(self, data: bytes) -> None:
        """Drop received data."""
        self._left -= len(data)
        if self._left < 0:
            self._transport.close()

    def forget(self) -> None:
        """Stop the timer of a connection that is lost."""
        if self._timer is not None:
            self._timer.cancel()
