"""OpenTelemetry traces, if it is installed and ``--trace`` is given.

A request's header ``traceparent`` names the client's span. OpenTelemetry's variables say where
spans go (``OTEL_TRACES_EXPORTER``, ``OTEL_EXPORTER_OTLP_ENDPOINT``, ``OTEL_SERVICE_NAME``, ...).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from tenonnx.errors import EPFail, InvalidArgument

# Headers that name a client's span.
CARRIED = ("traceparent", "tracestate", "baggage")


class Tracing:
    """Spans of requests.

    Raises:
        EPFail: OpenTelemetry or the exporter is not installed.
        InvalidArgument: The environment names an unknown exporter.
    """

    def __init__(self) -> None:
        try:
            from opentelemetry import propagate, trace
            from opentelemetry.sdk.trace import TracerProvider
        except ImportError as error:
            raise EPFail(
                f"--trace: OpenTelemetry is not installed: {error}",
                hint="pip install opentelemetry-sdk opentelemetry-exporter-otlp",
            ) from error
        self._extract = propagate.extract
        self._kind = trace.SpanKind.SERVER
        if not isinstance(trace.get_tracer_provider(), TracerProvider):
            trace.set_tracer_provider(_provider())
        self._tracer = trace.get_tracer("tenonnx.serve")

    @contextmanager
    def request(self, scope: Mapping[str, Any]) -> Iterator[Any]:
        """Yield the span of an HTTP request; logs and exceptions inside belong to it."""
        carrier = {
            name.decode("latin-1"): value.decode("latin-1")
            for name, value in scope["headers"]
            if name.decode("latin-1") in CARRIED
        }
        attributes = {"http.request.method": scope["method"], "url.path": scope["path"][:1000]}
        with self._tracer.start_as_current_span(
            f"{scope['method']} {route(scope['path'])}",
            self._extract(carrier),
            self._kind,
            attributes,
        ) as span:
            yield span

    @contextmanager
    def call(self, method: str, metadata: Mapping[str, bytes]) -> Iterator[Any]:
        """Yield the span of a gRPC call with the given metadata."""
        carrier = {name: metadata[name].decode("latin-1") for name in CARRIED if name in metadata}
        attributes = {"rpc.system": "grpc", "rpc.method": method}
        with self._tracer.start_as_current_span(
            method.removeprefix("/"), self._extract(carrier), self._kind, attributes
        ) as span:
            yield span


def route(path: str) -> str:
    """Return a path without the client's names, so that a span's name is one of a few."""
    parts = path.split("/")
    for before in ("models", "versions", "region"):
        for place in range(1, len(parts)):
            if parts[place - 1] == before and parts[place] not in ("stats", ""):
                parts[place] = "*"
    return "/".join(parts[:8])[:100]


def _provider() -> Any:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider = TracerProvider()
    if (exporter := _exporter(os.environ.get("OTEL_TRACES_EXPORTER", "otlp"))) is not None:
        provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider


def _exporter(name: str) -> Any:
    if name == "none":
        return None
    if name == "console":
        import sys

        from opentelemetry.sdk.trace.export import ConsoleSpanExporter

        return ConsoleSpanExporter(out=sys.stderr)
    if name != "otlp":
        raise InvalidArgument(f"OTEL_TRACES_EXPORTER={name}: expected otlp, console or none")
    try:
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
    except ImportError:
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        except ImportError as error:
            raise EPFail(
                f"--trace: spans cannot be exported: {error}",
                hint="pip install opentelemetry-exporter-otlp",
            ) from error
    return OTLPSpanExporter()
