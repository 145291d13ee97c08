"""The sockets that several processes listen on at one port (SO_REUSEPORT).

Linux gives each new connection to one of the listening sockets of a port, by a hash of both
addresses; a process that dies takes its socket along, and gets no more. A socket that is bound but
does not listen gets none: the supervisor holds one per port, so that the port stays the server's
while workers come and go.
"""

from __future__ import annotations

import contextlib
import errno
import socket

from tenonnx.errors import InvalidArgument

BACKLOG = 1024
"""Connections that wait to be accepted, per worker."""


def reserve(host: str, port: int) -> socket.socket:
    """Returns a socket that holds a port and does not listen; port 0 is any that is free.

    Raises:
        InvalidArgument: Another program has the port, or this machine has no such address.
    """
    # SO_REUSEPORT alone would share the port with another server of the same user, in silence.
    with _made(host) as probe:
        _bind(probe, host, port)
    held = _made(host)
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        _bind(held, host, port)
    except BaseException:
        held.close()
        raise
    return held


def listening(host: str, port: int) -> socket.socket:
    """Returns one more listening socket of a port that the supervisor holds."""
    with contextlib.ExitStack() as undo:
        made = undo.enter_context(_made(host))
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        _bind(made, host, port)
        made.listen(BACKLOG)
        made.setblocking(False)
        undo.pop_all()
        return made


def port_of(bound: socket.socket) -> int:
    """Returns the port of a bound socket."""
    port: int = bound.getsockname()[1]
    return port


def address(host: str, port: int) -> str:
    """Returns ``host:port`` as URLs have it: IPv6 in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _made(host: str) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][0]
    except socket.gaierror as error:
        raise InvalidArgument(f"--host {host}: {error.strerror}") from error
    # uvloop sets TCP_NODELAY where the protocol is said; without it a small answer may wait 40 ms.
    made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return made


def _bind(made: socket.socket, host: str, port: int) -> None:
    try:
        made.bind((host, port))
    except OSError as error:
        what = address(host, port)
        if error.errno == errno.EADDRINUSE:
            raise InvalidArgument(
                f"{what} is in use by another program", hint="choose another port; 0 is any"
            ) from error
        raise InvalidArgument(f"cannot listen on {what}: {error.strerror}") from error
