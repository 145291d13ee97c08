"""The interceptor of gRPC calls: access checks, the log, and a trace.

A server without a token, a log of requests or traces has no interceptor (``needed``), because one
costs time in each call. ``middleware`` does the same for HTTP.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

import grpc

from tenonnx_serve import logs
from tenonnx_serve.access import OPEN_CALLS, Gate
from tenonnx_serve.errors import Unauthorized
from tenonnx_serve.tracing import Tracing

# grpc's constructors of handlers, by whether requests and answers are streams.
HANDLERS = {
    (False, False): grpc.unary_unary_rpc_method_handler,
    (False, True): grpc.unary_stream_rpc_method_handler,
    (True, False): grpc.stream_unary_rpc_method_handler,
    (True, True): grpc.stream_stream_rpc_method_handler,
}


class GrpcInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[misc]  # the checker sees no grpc
    """Intercepts every call.

    Args:
        gate: Admits calls; ``None`` admits all.
        tracing: Makes a span of each call, unless it is ``None``.
    """

    def __init__(self, gate: Gate | None, tracing: Tracing | None) -> None:
        self._gate = gate
        self._tracing = tracing
        self._logging = logs.requests.isEnabledFor(20)

    @property
    def needed(self) -> bool:
        """Whether it does anything."""
        return bool(self._gate or self._tracing or self._logging)

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[Any]], details: Any
    ) -> Any:
        """Return the handler of a call."""
        handler = await continuation(details)
        metadata = {key: _bytes(value) for key, value in details.invocation_metadata}
        if self._gate is not None:
            try:
                self._gate.check(details.method, metadata.get("authorization"), OPEN_CALLS)
            except Unauthorized as error:
                return _refusing(handler, str(error))
        if handler is None or not (self._tracing or self._logging):
            return handler
        return self._watched(handler, details.method, metadata)

    def _watched(self, handler: Any, method: str, metadata: Mapping[str, bytes]) -> Any:
        streams = (handler.request_streaming, handler.response_streaming)
        if handler.response_streaming:
            inner = handler.stream_stream or handler.unary_stream

            async def stream(request: Any, context: Any) -> AsyncIterator[Any]:
                with self._around(method, metadata, context):
                    async for answer in inner(request, context):
                        yield answer

            behavior: Any = stream
        else:
            inner = handler.stream_unary or handler.unary_unary

            async def call(request: Any, context: Any) -> Any:
                with self._around(method, metadata, context):
                    return await inner(request, context)

            behavior = call
        return HANDLERS[streams](
            behavior, handler.request_deserializer, handler.response_serializer
        )

    @contextmanager
    def _around(self, method: str, metadata: Mapping[str, bytes], context: Any) -> Iterator[None]:
        logs.identify(metadata.get("x-request-id"))
        tracing = self._tracing
        start = time.perf_counter()
        with tracing.call(method, metadata) if tracing else nullcontext():
            try:
                yield
            finally:
                if self._logging:
                    code = context.code()
                    extra = {
                        "method": "gRPC",
                        "path": method,
                        "status": code.name if isinstance(code, grpc.StatusCode) else "OK",
                        "milliseconds": round((time.perf_counter() - start) * 1000, 3),
                    }
                    logs.requests.info("request", extra=extra)


def _bytes(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode()


def _refusing(handler: Any, why: str) -> Any:
    async def refuse(_: Any, context: Any) -> None:
        await context.abort(grpc.StatusCode.UNAUTHENTICATED, why)

    if handler is None:
        return HANDLERS[False, False](refuse)
    return HANDLERS[handler.request_streaming, handler.response_streaming](refuse)
