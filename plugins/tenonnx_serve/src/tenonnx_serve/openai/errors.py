"""Errors in OpenAI's form, which its clients make their exceptions of."""

from __future__ import annotations

from typing import Any

from tenonnx_serve.errors import BadRequest, Missing, ServeError

TYPES = {429: "rate_limit_error"}
CODES = {401: "invalid_api_key", 429: "rate_limit_exceeded"}


class Wrong(BadRequest):
    """A part of the request is wrong.

    Args:
        message: What, and what was expected.
        param: Which part.
        reason: OpenAI's word for it, if it has one.
    """

    def __init__(self, message: str, param: str | None = None, reason: str | None = None) -> None:
        super().__init__(message)
        self.param, self.reason = param, reason


class NoSuchModel(Missing):
    """There is no language model of that name."""

    param, reason = "model", "model_not_found"


def as_json(error: ServeError) -> dict[str, Any]:
    """Return what a client is told of an error."""
    kind = "server_error" if error.status >= 500 else "invalid_request_error"
    return {
        "error": {
            "message": str(error),
            "type": TYPES.get(error.status, kind),
            "param": getattr(error, "param", None),
            "code": getattr(error, "reason", CODES.get(error.status)),
        }
    }
