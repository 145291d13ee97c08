"""Metrics of language models' texts, by the names that vLLM gives them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from tenonnx_serve.counts import SECONDS, buckets

LABELS: Final = ("model_name", "version")

HISTOGRAMS: Final = {
    "first_token": ("vllm:time_to_first_token_seconds", "Seconds to a text's first token."),
    "token": ("vllm:inter_token_latency_seconds", "Seconds between two tokens of a text."),
    "queue": ("vllm:request_queue_time_seconds", "Seconds that a text waits for its caches."),
    "whole": ("vllm:e2e_request_latency_seconds", "Seconds of a whole text."),
}

COUNTERS: Final = {
    "prompt": ("vllm:prompt_tokens", "Tokens of prompts."),
    "generated": ("vllm:generation_tokens", "Tokens that were generated."),
    "drafted": ("vllm:spec_decode_num_draft_tokens", "Tokens that were drafted."),
    "accepted": ("vllm:spec_decode_num_accepted_tokens", "Drafted tokens that came."),
    "cached": ("vllm:prefix_cache_hits", "Tokens of prompts whose caches were there."),
}

GAUGES: Final = {
    "running": ("vllm:num_requests_running", "Texts that are generated."),
    "waiting": ("vllm:num_requests_waiting", "Texts that wait for their caches."),
    "cache_share": ("vllm:kv_cache_usage_perc", "Share of the caches that holds tokens, 0 to 1."),
}

Pairs = Sequence[tuple[tuple[str, str], Mapping[str, Any]]]


def of_texts(pairs: Pairs, workers: Iterable[Mapping[str, Any]]) -> Iterable[Metric]:
    """Yield the metrics.

    Args:
        pairs: Names and versions of models, with their counts.
        workers: What each worker tells.
    """
    texts = [(labels, counted["texts"]) for labels, counted in pairs if "texts" in counted]
    for key, (name, told) in HISTOGRAMS.items():
        histogram = HistogramMetricFamily(name, told, labels=LABELS)
        for labels, counted in texts:
            histogram.add_metric(labels, *buckets(SECONDS, counted["seconds"][key]))
        yield histogram
    for key, (name, told) in COUNTERS.items():
        counter = CounterMetricFamily(name, told, labels=LABELS)
        for labels, counted in texts:
            counter.add_metric(labels, counted["tokens"][key])
        yield counter
    ended = CounterMetricFamily(
        "vllm:request_success", "Texts, by how they ended.", labels=(*LABELS, "finished_reason")
    )
    for labels, counted in texts:
        for reason, count in counted["finished"].items():
            ended.add_metric((*labels, reason), count)
    yield ended
    loads = [
        (str(worker["number"]), each)
        for worker in workers
        for each in worker.get("now", {}).get("texts", ())
    ]
    for key, (name, told) in GAUGES.items():
        gauge = GaugeMetricFamily(name, told, labels=(*LABELS, "worker"))
        for number, each in loads:
            gauge.add_metric((each["model"], each["version"], number), each[key])
        yield gauge
