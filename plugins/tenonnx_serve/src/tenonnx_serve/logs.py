"""The log: lines of JSON or of text, with the id of the request."""

from __future__ import annotations

import itertools
import json
import logging
import os
import re
import secrets
import time
from contextvars import ContextVar
from typing import Any, Final

# The id of the request that the current task answers.
request_id: ContextVar[str] = ContextVar("request_id", default="")

# The form of a client's request id; other ids are replaced by the server's own.
ID = re.compile(r"[\x21-\x7e]{1,128}")

# Fields of a record besides its message, in this order.
FIELDS: Final = (
    "worker", "method", "path", "model", "status", "milliseconds", "bytes_in", "bytes_out",
)  # fmt: skip

# Logs one record per request, at level INFO.
requests = logging.getLogger("tenonnx.serve.requests")

_prefix = secrets.token_hex(4)
_numbers = itertools.count(1)


def identify(given: bytes | None) -> str:
    """Set the id of the current task's request: the client's, if its form is valid."""
    named = given.decode("latin-1") if given else ""
    if not ID.fullmatch(named):
        named = f"{_prefix}-{next(_numbers):x}"
    request_id.set(named)
    return named


class JsonLines(logging.Formatter):
    """Formats records as JSON objects, one a line, for ``jq`` and log collectors."""

    def format(self, record: logging.LogRecord) -> str:
        """Return a record's line."""
        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        said: dict[str, Any] = {
            "time": f"{seconds}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        said |= {name: value for name, value in _extra(record).items() if value is not None}
        if record.exc_info:
            said["traceback"] = self.formatException(record.exc_info)
        return json.dumps(said, ensure_ascii=True, default=str)


class Lines(logging.Formatter):
    """Formats records as lines of text; text from clients is escaped and stays on its line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return a record's line."""
        extra = " ".join(
            f"{name}={json.dumps(value)}"
            for name, value in _extra(record).items()
            if value is not None
        )
        clock = time.strftime("%H:%M:%S", time.localtime(record.created))
        text = f"{clock} {record.levelname}: {record.name}: {record.getMessage()}"
        if extra:
            text += f" ({extra})"
        return f"{text}\n{self.formatException(record.exc_info)}" if record.exc_info else text


def _extra(record: logging.LogRecord) -> dict[str, Any]:
    said = {name: getattr(record, name, None) for name in FIELDS}
    said["worker"] = os.environ.get("TENONNX_SERVE_WORKER")
    said["request"] = request_id.get() or None
    return said


def _is_of_server(record: logging.LogRecord) -> bool:
    """Return whether a gRPC record is about more than a client's malformed message."""
    kind = record.exc_info[0] if record.exc_info else None
    return kind is None or kind.__name__ != "DecodeError"


def start(form: str, verbosity: int, each_request: bool) -> None:
    """Send this process's log to standard error.

    Args:
        form: ``json`` or ``text``.
        verbosity: 0 for warnings, 1 for the server's actions as well, 2 for details.
        each_request: Whether to log each request.
    """
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines() if form == "json" else Lines())
    levels = (logging.WARNING, logging.INFO, logging.DEBUG)
    logging.basicConfig(level=levels[min(verbosity, 2)], handlers=[handler], force=True)
    requests.setLevel(logging.INFO if each_request else logging.WARNING)
    # Bytes that are not HTTP get an answer; a line for each would fill the disk.
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    logging.getLogger("grpc._cython.cygrpc").addFilter(_is_of_server)
