"""The fast path of short requests: answered where their last byte is read, without a task.

Such a request comes in one or two pieces, for a model whose runs are known to be
:mod:`short <tenonnx_serve.inline_runs>`, and needs no other service. All other requests, and those
that fail, go to the ASGI application as if nothing had been tried: it alone makes errors. So a
check or header that ``middleware`` adds for each request is needed here, too.
"""

from __future__ import annotations

import functools
from typing import Final
from urllib.parse import unquote

from tenonnx_serve import logs, rest_infer
from tenonnx_serve.access import Gate, check_host
from tenonnx_serve.bodies import compressed
from tenonnx_serve.core import MIN_THREADED_BYTES, Core
from tenonnx_serve.errors import ServeError

Lines = list[tuple[bytes, bytes]]

# Headers of requests that only the application can answer.
NOT_PLAIN: Final = frozenset((b"content-encoding", b"expect", b"origin", b"upgrade"))

RESPONSE_HEAD: Final = b"HTTP/1.1 200 OK\r\nx-request-id: %s\r\ncontent-length: %d\r\n"
JSON: Final = b"content-type: application/json\r\n\r\n"
BINARY: Final = (
    b"content-type: application/octet-stream\r\ninference-header-content-length: %d\r\n\r\n"
)


class FastPath:
    """Answers inference requests at once, or leaves them to the application.

    Args:
        core: The server's core.
        gate: Admits requests; ``None`` admits all.
        hosts: Names by which clients may call the server; ``None`` for any.
    """

    def __init__(self, core: Core, gate: Gate | None, hosts: frozenset[bytes] | None) -> None:
        self._core = core
        self._gate = gate
        self._hosts = hosts

    def answer(self, url: bytes, lines: Lines, body: bytes) -> bytes | None:
        """Return a whole HTTP answer; ``None`` if the application must answer.

        Args:
            url: The URL of a POST.
            lines: Its headers, by lower-case names.
            body: Its whole body.
        """
        core, wanted, headers = self._core, _model_in(url), dict(lines)
        if wanted is None or len(body) >= MIN_THREADED_BYTES or not NOT_PLAIN.isdisjoint(headers):
            return None
        try:
            check_host(headers.get(b"host", b""), self._hosts)
            if self._gate is not None:
                self._gate.check("", headers.get(b"authorization"))
            queue = core.repository.find(*wanted)
        except ServeError:
            # The application meets the same error, and answers, logs and counts it.
            return None
        if not queue.has_short_runs:
            return None
        named = logs.identify(headers.get(b"x-request-id")).encode()
        model, header = queue.model, headers.get(rest_infer.HEADER_LENGTH)
        limits, regions = core.settings.limits, core.regions
        found = core.run_inline(
            queue,
            lambda: rest_infer.decode(model, body, header, limits, regions),
            lambda request, arrays: rest_infer.encode(model, request, arrays, regions),
        )
        if found is None:
            return None
        pieces, length = found
        whole, encoding = b"".join(pieces), b""
        if accepted := headers.get(b"accept-encoding"):
            whole, encoding = compressed(whole, accepted)
        kind = BINARY % length if length else JSON
        more = b"content-encoding: %s\r\n" % encoding if encoding else b""
        return RESPONSE_HEAD % (named, len(whole)) + more + kind + whole


@functools.lru_cache(maxsize=1024)
def _model_in(url: bytes) -> tuple[str, str] | None:
    """Return the model and the version in a path of inference; ``None`` for other paths."""
    parts = unquote(url.decode("latin-1"), errors="replace").split("/")
    if b"?" in url or parts[:3] != ["", "v2", "models"] or parts[-1] != "infer":
        return None
    match parts[3:-1]:
        case [name]:
            return name, ""
        case [name, "versions", version]:
            return name, version
    return None
