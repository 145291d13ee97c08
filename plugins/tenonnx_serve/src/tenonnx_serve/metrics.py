"""Metrics in Prometheus' format, summed over all workers.

prometheus-client writes the format. Its multiprocess mode is not used: it keeps every number in
files that all workers map. That costs ten times as much per request, leaves files of dead workers,
and lacks the numbers of the protocol's statistics and of the page.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from tenonnx_serve.counts import BATCH_BOUNDS, SECONDS, buckets, summed
from tenonnx_serve.text_metrics import of_texts

CONTENT_TYPE = CONTENT_TYPE_LATEST.encode()

LABELS = ("model", "version")


def exposition(collected: Mapping[str, Any]) -> bytes:
    """Return Prometheus' text for the counts of ``Supervisor``."""
    text: bytes = generate_latest(_Collected(collected))
    return text


class _Collected(Collector):  # type: ignore[misc]  # the library is not seen by the checker
    def __init__(self, collected: Mapping[str, Any]) -> None:
        self._collected = collected

    def collect(self) -> Iterable[Metric]:
        models = summed(self._collected).get("models", {})
        pairs = [
            ((name, version), counted)
            for name, versions in sorted(models.items())
            for version, counted in sorted(versions.items())
        ]
        yield from _of_requests(pairs)
        if any("texts" in counted for _, counted in pairs):
            yield from of_texts(pairs, self._collected["workers"])
        yield from _of_workers(self._collected)


Pairs = list[tuple[tuple[str, str], Mapping[str, Any]]]


def _of_requests(pairs: Pairs) -> Iterable[Metric]:
    requests = CounterMetricFamily(
        "tenonnx_requests", "Inference requests, by outcome.", labels=(*LABELS, "outcome")
    )
    rows = HistogramMetricFamily("tenonnx_batch_rows", "Rows of each run.", labels=LABELS)
    stages = HistogramMetricFamily(
        "tenonnx_request_seconds",
        "Seconds of successful requests, by stage; 'request' is all stages.",
        labels=(*LABELS, "stage"),
    )
    for labels, counted in pairs:
        succeeded = sum(counted["stages"]["request"]["counts"])
        requests.add_metric((*labels, "success"), succeeded)
        requests.add_metric((*labels, "failure"), counted["failed"])
        rows.add_metric(labels, *buckets(BATCH_BOUNDS, counted["batches"]))
        for stage, histogram in counted["stages"].items():
            stages.add_metric((*labels, stage), *buckets(SECONDS, histogram))
    yield from (requests, stages, rows)


def _of_workers(collected: Mapping[str, Any]) -> Iterable[Metric]:
    yield GaugeMetricFamily(
        "tenonnx_workers",
        "Workers that take requests.",
        sum(worker["serving"] for worker in collected["workers"]),
    )
    yield CounterMetricFamily(
        "tenonnx_worker_deaths", "Workers that ended and were replaced.", collected["deaths"]
    )
    yield GaugeMetricFamily(
        "tenonnx_start_time_seconds", "When the server started.", collected["started"]
    )
    memory = GaugeMetricFamily(
        "tenonnx_worker_memory_bytes",
        "Memory: 'private' is a worker's own; 'mapped' is files' memory, shared by all workers.",
        labels=("worker", "kind"),
    )
    waiting = GaugeMetricFamily(
        "tenonnx_requests_in_flight", "Requests that wait or run.", labels=("worker",)
    )
    for worker in collected["workers"]:
        number = str(worker["number"])
        for kind, nbytes in worker["memory"].items():
            memory.add_metric((number, kind), nbytes)
        if "now" in worker:
            waiting.add_metric((number,), worker["now"]["in_flight"])
    yield from (memory, waiting)
