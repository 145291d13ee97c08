"""Requests of handles and HTTP: ``{"inputs": {"x": [[...]]}}`` and ``{"outputs": {...}}``."""

from __future__ import annotations

import json
import math
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np

from tenonnx import InferenceSession, InvalidArgument, NoSuchFile, TenonnxError
from tenonnx_ray.batching import Answer, Feeds, run
from tenonnx_ray.needed import needed
from tenonnx_ray.opening import dtype_of

# The largest body of a request.
MAX_BODY_BYTES = 64 << 20

Join = Callable[[Feeds], Awaitable[Answer | Exception]]


async def answered(
    request: Any, session: InferenceSession | Awaitable[InferenceSession], join: Join | None
) -> Any:
    """Answer a request.

    Args:
        request: Inputs by name, or a ``starlette.requests.Request``.
        session: The session, or an awaitable that returns it.
        join: Runs it together with others; ``None`` to run it alone.

    Raises:
        TenonnxError: A handle's request failed; an HTTP request gets a status instead.
    """
    if not hasattr(request, "stream"):  # an HTTP request has it, and is a mapping as well
        return await _outputs(request, await _opened(session), join)
    respond = needed("starlette.responses").JSONResponse
    try:
        there = await _opened(session)
        outputs = await _outputs(await _feeds(request, there), there, join)
        return respond({"outputs": {name: _plain(each) for name, each in outputs.items()}})
    except NoSuchFile as error:
        return respond({"error": str(error)}, 404)
    except (TenonnxError, ValueError, TypeError) as error:
        return respond({"error": str(error)}, 400)


async def _opened(session: InferenceSession | Awaitable[InferenceSession]) -> InferenceSession:
    return session if isinstance(session, InferenceSession) else await session


async def _outputs(feeds: Feeds, session: InferenceSession, join: Join | None) -> Answer:
    if join is None:
        return await run(session, feeds)
    answer = await join(feeds)
    if isinstance(answer, Exception):
        raise answer
    return answer


async def _feeds(request: Any, session: InferenceSession) -> Feeds:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            raise InvalidArgument(f"the body is larger than the limit of {MAX_BODY_BYTES} bytes")
    content = json.loads(body or b"null")
    inputs = content.get("inputs") if isinstance(content, dict) else None
    if not isinstance(inputs, dict):
        raise InvalidArgument('expected a body {"inputs": {"name": [...]}}')
    kinds = {arg.name: arg.type for arg in session.get_inputs()}
    return {name: _array(name, kinds.get(name), value) for name, value in inputs.items()}


def _array(name: str, kind: str | None, value: Any) -> Any:
    """Return a JSON list as an array of an input's type; the session reports unknown names."""
    if kind is None:
        return np.zeros(0)
    if kind == "tensor(string)":
        return np.array(value, np.object_)
    if (dtype := dtype_of(kind)) is None:
        raise InvalidArgument(f"input {name!r} is {kind}, which has no form in JSON")
    array = np.array(value)
    if array.dtype == object or not (
        array.size == 0 or np.can_cast(array.dtype, dtype, "same_kind")
    ):
        raise InvalidArgument(f"input {name!r}: expected a list of numbers for {kind}")
    return array.astype(dtype)


def _plain(output: Any) -> Any:
    """Return an output for JSON; numbers that JSON lacks are ``None``."""
    if not isinstance(output, np.ndarray):
        return output
    if output.dtype.kind not in "fiubOUS":
        output = output.astype(np.float32)  # bfloat16, and floats of 8 bits
    if output.dtype.kind == "f" and not np.isfinite(output).all():
        return _finite(output.tolist())
    return output.tolist()


def _finite(value: Any) -> Any:
    if isinstance(value, list):
        return [_finite(each) for each in value]
    return value if math.isfinite(value) else None
