"""Errors that requests get as answers: a class for each pair of HTTP status and gRPC code."""

from __future__ import annotations

from typing import ClassVar

from tenonnx import InvalidArgument, TenonnxError
from tenonnx.process.interruption import Stopped


class ServeError(Exception):
    """A request that cannot be answered; its text goes to the client.

    Attributes:
        status: The HTTP status.
        code: The name of the gRPC code.
        retry_after: Seconds after which the client may retry, if that may help.
        closes: Whether the connection is closed, as the rest of the body may still come.
    """

    status: ClassVar[int] = 500
    code: ClassVar[str] = "INTERNAL"
    retry_after: int | None = None
    closes: ClassVar[bool] = False


class BadRequest(ServeError):
    """The request is wrong, and stays wrong."""

    status, code = 400, "INVALID_ARGUMENT"


class Unauthorized(ServeError):
    """The request does not authenticate its sender."""

    status, code = 401, "UNAUTHENTICATED"


class Forbidden(ServeError):
    """The sender may not request this."""

    status, code = 403, "PERMISSION_DENIED"


class Missing(ServeError):
    """The model, version, region or path does not exist."""

    status, code = 404, "NOT_FOUND"


class WrongMethod(ServeError):
    """The path exists, but for another HTTP method."""

    status, code = 405, "UNIMPLEMENTED"


class SlowBody(ServeError):
    """The client takes too long to send its request."""

    status, code, closes = 408, "DEADLINE_EXCEEDED", True


class TooLarge(ServeError):
    """The request is larger than the limits allow."""

    status, code, closes = 413, "RESOURCE_EXHAUSTED", True


class Busy(ServeError):
    """Too many requests wait."""

    status, code, retry_after = 429, "RESOURCE_EXHAUSTED", 1


class Cancelled(ServeError):
    """The client no longer waits for the answer."""

    status, code = 499, "CANCELLED"


class RunFailed(ServeError):
    """The model failed on inputs that fit its signature."""


class Unsupported(ServeError):
    """The protocol has this feature, but this server does not."""

    status, code = 501, "UNIMPLEMENTED"


class Unavailable(ServeError):
    """The model or the server is not ready yet, or no longer."""

    status, code, retry_after = 503, "UNAVAILABLE", 1


class BodyMemoryFull(Unavailable):
    """Other unfinished requests have taken the memory for bodies."""

    closes = True


class TimedOut(ServeError):
    """The request took longer than it may."""

    status, code = 504, "DEADLINE_EXCEEDED"


def answer_to(error: BaseException) -> ServeError:
    """Return the error for a client; a defect becomes an internal error without details."""
    if isinstance(error, ServeError):
        return error
    if isinstance(error, InvalidArgument):
        return BadRequest(str(error))
    if isinstance(error, Stopped):
        return TimedOut(str(error.args[0]))
    if isinstance(error, TenonnxError):
        return RunFailed(str(error))
    if isinstance(error, MemoryError):
        return RunFailed("there is not enough memory for this request")
    return ServeError("internal error; the server's log has it")
