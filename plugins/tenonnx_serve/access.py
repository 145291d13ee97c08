"""Who may ask: TLS, and a token that requests bring along.

The token is read from a file or the environment: all users of a machine see arguments.
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
"""What may be asked without a token: orchestrators' probes bring none."""

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
    """What the server's ports ask of clients.

    Attributes:
        certificate: A file of PEM: the server's certificate and those that sign it.
        key: A file of PEM: its private key.
        token_file: A file that holds the token, on one line.
    """

    certificate: str = ""
    key: str = ""
    token_file: str = ""

    def __post_init__(self) -> None:
        if bool(self.certificate) != bool(self.key):
            raise InvalidArgument("TLS needs both --tls-cert and --tls-key")

    def check(self) -> None:
        """Reads all that is named.

        Raises:
            InvalidArgument: A file cannot be read, or is not what it should be.
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
        """Returns the token that clients have to bring; nothing if they need none."""
        if not self.token_file:
            return os.environ.get(TOKEN_VARIABLE, "").encode()
        try:
            token = Path(self.token_file).read_bytes().strip()
        except OSError as error:
            raise InvalidArgument(f"--token-file {self.token_file}: {error.strerror}") from error
        if not token or any(byte <= 0x20 or byte > 0x7E for byte in token):
            raise InvalidArgument(f"--token-file {self.token_file} does not hold one word of ASCII")
        return token


def warning(host: str, access: Access) -> str:
    """Returns what is dangerous about an address to listen on; nothing if nothing is."""
    if host in LOOPBACK:
        return ""
    if not access.read_token():
        return f"whoever reaches {host} may run models: there is no token"
    if not access.certificate:
        return f"tokens and data cross the network to {host} as they are: there is no TLS"
    return ""


class Gate:
    """Lets requests with the token pass.

    Args:
        token: What they have to bring.
    """

    def __init__(self, token: bytes) -> None:
        self._expected = b"Bearer " + token

    def check(self, path: str, given: bytes | None, unguarded: frozenset[str] = OPEN) -> None:
        """Raises ``Unauthorized`` unless a request may pass.

        Args:
            path: Of HTTP, or a method of gRPC's.
            given: The header ``Authorization``, if there is one.
            unguarded: What all may ask.
        """
        if path not in unguarded and not hmac.compare_digest(given or b"", self._expected):
            raise Unauthorized("this server takes requests with its token: Authorization: Bearer …")


def check_origin(path: str, origin: bytes, host: bytes, local: bool) -> None:
    """Refuses what a page of another site, open in somebody's browser, asks the server to change.

    A browser sends a page's requests to servers on its own machine, too, and says in the header
    ``Origin`` whose page it is. Inferences change nothing, and browsers keep answers from the page.

    Args:
        path: What is asked.
        origin: The header ``Origin``.
        host: The header ``Host``, by which the browser reached the server.
        local: Whether it listens for its machine alone: no other name than that leads there, but
            those that somebody made to lead there.

    Raises:
        Forbidden: The page is not the server's own.
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
