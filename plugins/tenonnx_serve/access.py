"""Access control: TLS, and a token that requests must carry.

The token is read from a file or the environment, because all users of a machine see arguments.
"""

from __future__ import annotations

import hmac
import os
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tenonnx.errors import InvalidArgument
from tenonnx_serve.errors import Forbidden, Unauthorized

TOKEN_VARIABLE = "TENONNX_SERVE_TOKEN"

OPEN: Final = frozenset({"/v2/health/live", "/v2/health/ready"})
"""Paths that need no token, because orchestrators' probes send none."""

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
    """

    certificate: str = ""
    key: str = ""
    token_file: str = ""

    def __post_init__(self) -> None:
        if bool(self.certificate) != bool(self.key):
            raise InvalidArgument("TLS needs both --tls-cert and --tls-key")

    def check(self) -> None:
        """Reads all files that are named.

        Raises:
            InvalidArgument: A file cannot be read, or has the wrong content.
        """
        self.read_token()
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
        """Returns the token that clients must send; ``None`` if they need none."""
        if not self.token_file:
            return os.environ.get(TOKEN_VARIABLE, "").encode()
        try:
            token = Path(self.token_file).read_bytes().strip()
        except OSError as error:
            raise InvalidArgument(f"--token-file {self.token_file}: {error.strerror}") from error
        if not token or any(byte <= 0x20 or byte > 0x7E for byte in token):
            raise InvalidArgument(f"--token-file {self.token_file}: expected one word of ASCII")
        return token


def warning(host: str, access: Access) -> str:
    """Returns the danger of an address to listen on; an empty string if there is none."""
    if host in LOOPBACK:
        return ""
    if not access.read_token():
        return f"anybody who reaches {host} may run models: there is no token"
    if not access.certificate:
        return f"tokens and data cross the network to {host} unencrypted: there is no TLS"
    return ""


class Gate:
    """Admits requests that carry the token.

    Args:
        token: The token.
    """

    def __init__(self, token: bytes) -> None:
        self._expected = b"Bearer " + token

    def check(self, path: str, given: bytes | None, unguarded: frozenset[str] = OPEN) -> None:
        """Raises ``Unauthorized`` unless a request may pass.

        Args:
            path: The HTTP path, or the gRPC method.
            given: The header ``Authorization``, if there is one.
            unguarded: Paths that need no token.
        """
        if path not in unguarded and not hmac.compare_digest(given or b"", self._expected):
            raise Unauthorized("this server needs a token: send Authorization: Bearer TOKEN")


def check_origin(path: str, origin: bytes, host: bytes, local: bool) -> None:
    """Refuses changes of the server that a page of another site requests in a browser.

    A browser sends a page's requests to servers on its own machine too, and names the page's site
    in the header ``Origin``. Inferences change nothing, and browsers keep answers from the page.

    Args:
        path: The path of the request.
        origin: The header ``Origin``.
        host: The header ``Host``, by which the browser reached the server.
        local: Whether the server listens for its machine alone. Then no other host name leads to
            it, except those that somebody pointed there.

    Raises:
        Forbidden: The page is from another site.
    """
    if not path.startswith("/v2/") or path.startswith("/v2/models/"):
        return
    asking = origin.partition(b"://")[2]
    name = asking.rpartition(b":")[0] or asking
    if asking != host or (local and name.strip(b"[]").decode("latin-1") not in LOOPBACK):
        raise Forbidden("pages of other sites may not change the server")


def credentials(access: Access) -> Any:
    """Returns gRPC's credentials for the server; ``None`` without TLS."""
    if not access.certificate:
        return None
    import grpc

    pair = (Path(access.key).read_bytes(), Path(access.certificate).read_bytes())
    return grpc.ssl_server_credentials([pair])
