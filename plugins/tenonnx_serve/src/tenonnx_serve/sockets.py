"""Listening sockets of several processes on one port (SO_REUSEPORT).

Linux gives each new connection to one of a port's listening sockets, by a hash of both addresses.
The socket of a process that dies is closed, and gets no more. A socket that is bound but does not
listen gets none. The supervisor holds such a socket per port, which keeps the port while workers
come and go.
"""

from __future__ import annotations

import contextlib
import errno
import socket

from tenonnx.errors import InvalidArgument

# Connections that wait for acceptance, per worker.
BACKLOG = 1024


def reserve(host: str, port: int) -> socket.socket:
    """Return a socket that holds a port and does not listen; port 0 is any free one.

    Raises:
        InvalidArgument: Another program has the port, or this machine has no such address.
    """
    # SO_REUSEPORT alone would silently share the port with another server of the same user.
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
    """Return another listening socket of the supervisor's port."""
    with contextlib.ExitStack() as undo:
        made = undo.enter_context(_made(host))
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        _bind(made, host, port)
        made.listen(BACKLOG)
        made.setblocking(False)
        undo.pop_all()
        return made


def port_of(bound: socket.socket) -> int:
    """Return the port of a bound socket."""
    port: int = bound.getsockname()[1]
    return port


def address(host: str, port: int) -> str:
    """Return ``host:port`` as in URLs: IPv6 in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _made(host: str) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][0]
    except socket.gaierror as error:
        raise InvalidArgument(f"--host {host}: {error.strerror}") from error
    # uvloop sets TCP_NODELAY if the protocol is given; without it a small answer may wait 40 ms.
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
                f"{what} is in use by another program",
                hint="choose another port; 0 takes any free one",
            ) from error
        raise InvalidArgument(f"cannot listen on {what}: {error.strerror}") from error
