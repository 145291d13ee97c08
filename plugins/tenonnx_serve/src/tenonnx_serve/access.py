"""Access control: TLS, and a token that requests must carry.

The token is read from a file or the environment, because all users of a machine see arguments.
"""

from __future__ import annotations

import hmac
import os
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tenonnx.errors import InvalidArgument
from tenonnx_serve import login
from tenonnx_serve.errors import Forbidden, Unauthorized

TOKEN_VARIABLE = "TENONNX_SERVE_TOKEN"
CONTROL_VARIABLE = "TENONNX_SERVE_CONTROL_TOKEN"

# Paths that need no token: orchestrators' probes send none, and a form brings it.
OPEN: Final = frozenset({"/v2/health/live", "/v2/health/ready", login.PATH})

OPEN_CALLS: Final = frozenset(
    f"/{service}/{call}"
    for service, calls in {
        "inference.GRPCInferenceService": ("ServerLive", "ServerReady"),
        "grpc.health.v1.Health": ("Check", "Watch"),
    }.items()
    for call in calls
)

LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})


@dataclass(frozen=True)
class Access:
    """Access settings of the server's ports.

    Attributes:
        certificate: A PEM file: the server's certificate and its chain.
        key: A PEM file: the certificate's private key.
        token_file: A file with the token on one line.
        hosts: Names by which clients may call the server, besides this machine's own.
        control: Whoever may run models may load and unload them, and change settings.
        control_token_file: A file with the token of those who may.
    """

    certificate: str = ""
    key: str = ""
    token_file: str = ""
    hosts: tuple[str, ...] = ()
    control: bool = False
    control_token_file: str = ""

    def __post_init__(self) -> None:
        if bool(self.certificate) != bool(self.key):
            raise InvalidArgument("TLS needs both --tls-cert and --tls-key")

    def check(self) -> None:
        """Read all files that are named.

        Raises:
            InvalidArgument: A file cannot be read, or has the wrong content.
        """
        self.read_token()
        self.read_control_token()
        if self.certificate:
            try:
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                context.load_cert_chain(self.certificate, self.key)
            except (OSError, ssl.SSLError) as error:
                raise InvalidArgument(
                    f"--tls-cert {self.certificate}, --tls-key {self.key}: {error}",
                    hint="expected a certificate and its key without a password, in PEM",
                ) from error

    def read_token(self) -> bytes:
        """Return the token that clients must send; nothing if they need none."""
        return _read_token(self.token_file, "--token-file", TOKEN_VARIABLE)

    def read_control_token(self) -> bytes:
        """Return the token of those who may load models; nothing if there is none."""
        return _read_token(self.control_token_file, "--control-token-file", CONTROL_VARIABLE)


def _read_token(file: str, option: str, variable: str) -> bytes:
    if not file:
        return os.environ.get(variable, "").strip().encode()
    try:
        token = Path(file).read_bytes().strip()
    except OSError as error:
        raise InvalidArgument(f"{option} {file}: {error.strerror}") from error
    if not token or any(byte <= 0x20 or byte > 0x7E for byte in token):
        raise InvalidArgument(f"{option} {file}: expected one word of ASCII")
    return token


def warning(host: str, access: Access) -> str:
    """Return the danger of an address to listen on; an empty string if there is none."""
    if host in LOOPBACK:
        return ""
    if not access.read_token():
        return f"anybody who reaches {host} may run models: there is no token"
    if not access.certificate:
        return f"tokens and data cross the network to {host} unencrypted: there is no TLS"
    return ""


class Gate:
    """Admits requests that carry a token.

    Args:
        token: The token.
        others: Further tokens that admit.
    """

    def __init__(self, token: bytes, *others: bytes) -> None:
        self._token, self._tokens = token, (token, *others)

    def check(
        self,
        path: str,
        given: bytes | None,
        unguarded: frozenset[str] = OPEN,
        cookie: bytes | None = None,
    ) -> None:
        """Raise ``Unauthorized`` unless a request may pass.

        Args:
            path: The HTTP path, or the gRPC method.
            given: The header ``Authorization``, if there is one.
            unguarded: Paths that need no token.
            cookie: The header ``Cookie``, which a browser sends.
        """
        if path in unguarded or login.admits(self._token, path, cookie):
            return
        if not carries(given, *self._tokens):
            raise Unauthorized("this server needs a token: send Authorization: Bearer TOKEN")


class Controls:
    """Admits requests that load and unload models, and change the server's settings.

    Args:
        access: It says who may.
    """

    def __init__(self, access: Access) -> None:
        self._open, self._token = access.control, access.read_control_token()

    def check(self, given: bytes | None) -> None:
        """Refuse whoever may not.

        Args:
            given: The header ``Authorization``, if there is one.

        Raises:
            Forbidden: Nobody may, or the request lacks the token of those who may.
        """
        if self._token:
            if not carries(given, self._token):
                raise Forbidden("this needs the server's control token")
        elif not self._open:
            raise Forbidden(
                "loading and unloading models and changing settings are off; the server's options "
                "--control and --control-token-file allow it"
            )


def carries(given: bytes | None, *tokens: bytes) -> bool:
    """Return whether a header ``Authorization`` has one of some tokens."""
    scheme, _, token = (given or b"").partition(b" ")
    # A list: `any` over a generator would stop at a match, and its time would tell which one.
    right = [hmac.compare_digest(token.strip(), each) for each in tokens if each]
    return any(right) and scheme.lower() == b"bearer"


def hosts_of(host: str, allowed: Sequence[str]) -> frozenset[bytes] | None:
    """Return the names by which clients may call the server; ``None`` for any name.

    A server that listens for its machine alone is called by the machine's own names. Any other name
    leads to it because somebody made it: a page of another site that calls its own name in a
    browser on this machine (DNS rebinding) would run models and read their answers.

    Args:
        host: The address to listen on.
        allowed: More names.
    """
    if host not in LOOPBACK:
        return frozenset(name.lower().encode() for name in allowed) or None
    return frozenset(name.lower().encode() for name in (*LOOPBACK, *allowed))


def check_host(given: bytes, hosts: frozenset[bytes] | None) -> None:
    """Refuse a request to another name than the server's.

    Args:
        given: The header ``Host``; browsers always send one.
        hosts: The names, or ``None`` for any.

    Raises:
        Forbidden: It is another name.
    """
    if given and hosts is not None and name_of(given) not in hosts:
        shown = given[:80].decode("latin-1")
        raise Forbidden(f"this server is not called {shown!r}; --allowed-host adds a name")


def check_origin(origin: bytes, host: bytes) -> None:
    """Refuse what a page of another site requests in a browser.

    Args:
        origin: The header ``Origin``, which names the page's site.
        host: The header ``Host``, by which the browser reached the server.

    Raises:
        Forbidden: The page is from another site.
    """
    if origin.partition(b"://")[2] != host:
        raise Forbidden("pages of other sites may not use the server")


def name_of(host: bytes) -> bytes:
    """Return the name in a header ``Host``, without its port and brackets."""
    name = host if host.endswith(b"]") or b":" not in host else host.rpartition(b":")[0]
    return name.strip(b"[]").lower()


def credentials(access: Access) -> Any:
    """Return gRPC's credentials for the server; ``None`` without TLS."""
    if not access.certificate:
        return None
    import grpc

    pair = (Path(access.key).read_bytes(), Path(access.certificate).read_bytes())
    return grpc.ssl_server_credentials([pair])
