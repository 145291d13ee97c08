"""Metrics, the page and the log, of numbers that are made up."""

from __future__ import annotations

import json
import logging
import sys
from html.parser import HTMLParser
from typing import Any

import pytest

pytest.importorskip("prometheus_client")

from prometheus_client.parser import text_string_to_metric_families

from looked_at import HOSTILE, MODELS, collected, counted
from tenonnx_serve import logs
from tenonnx_serve.counts import SECONDS, Histogram, add
from tenonnx_serve.metrics import exposition
from tenonnx_serve.page import page, quantile


def samples() -> dict[str, list[Any]]:
    text = exposition(collected()).decode()
    families = text_string_to_metric_families(text)
    found: dict[str, list[Any]] = {}
    for sample in (sample for family in families for sample in family.samples):
        found.setdefault(sample.name, []).append(sample)
    return found


def one(found: dict[str, list[Any]], name: str, **labels: str) -> float:
    matching = [s for s in found[name] if labels.items() <= s.labels.items()]
    assert len(matching) == 1, (name, labels, matching)
    return float(matching[0].value)


def test_metrics_are_sums_over_workers_and_the_dead() -> None:
    found = samples()
    for model in ("plain", HOSTILE):
        assert one(found, "tenonnx_requests_total", model=model, outcome="success") == 25
        assert one(found, "tenonnx_requests_total", model=model, outcome="failure") == 3
        stage = {"model": model, "stage": "compute"}
        assert one(found, "tenonnx_request_seconds_count", **stage) == 25
        assert one(found, "tenonnx_request_seconds_sum", **stage) == pytest.approx(0.05)
        assert one(found, "tenonnx_request_seconds_bucket", **stage, le="0.001") == 0
        assert one(found, "tenonnx_request_seconds_bucket", **stage, le="0.0025") == 25
        assert one(found, "tenonnx_request_seconds_bucket", **stage, le="+Inf") == 25
        assert one(found, "tenonnx_batch_rows_sum", model=model) == 100
    assert one(found, "tenonnx_workers") == 1
    assert one(found, "tenonnx_worker_deaths_total") == 1
    assert one(found, "tenonnx_worker_memory_bytes", worker="1", kind="private") == 50 << 20
    assert one(found, "tenonnx_requests_in_flight", worker="0") == 2


def test_snapshots_are_json_and_are_added() -> None:
    total: dict[str, Any] = {}
    add(total, counted(2))
    add(total, json.loads(json.dumps(counted(3))))
    assert total == counted(5) | {"models": total["models"]}
    assert total["models"]["plain"]["1"]["failed"] == 2
    assert sum(total["models"]["plain"]["1"]["stages"]["request"]["counts"]) == 5


def test_quantiles_are_bounds() -> None:
    found = Histogram(SECONDS)
    assert quantile(found.counts, 0.5) == "–"
    for seconds in (0.0001, 0.002, 0.002, 60):
        found.observe(seconds)
    assert quantile(found.counts, 0.25) == "0.25"
    assert quantile(found.counts, 0.5) == "2.5"
    assert quantile(found.counts, 0.99) == "> 10000"


class Elements(HTMLParser):
    """Notes a page's elements, attributes and text."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_escapes_names_and_needs_nothing_else() -> None:
    text = page(collected(), MODELS, "0.1<2").decode()
    elements = Elements()
    elements.feed(text)
    assert HOSTILE in elements.text
    assert "<b>it</b> is damaged" in elements.text
    assert {"script", "img", "link", "a", "b", "form"}.isdisjoint(elements.tags)
    names = {name for name, _ in elements.attributes}
    assert {"src", "href", "style"}.isdisjoint(names)
    assert not any(name.startswith("on") for name in names)


def formatted(formatter: logging.Formatter, message: str, **extra: Any) -> str:
    try:
        raise ValueError("a\nb")
    except ValueError:
        exc_info = sys.exc_info()
    record = logging.LogRecord("tenonnx.serve", 40, "f", 1, message, (), exc_info)
    for name, value in extra.items():
        setattr(record, name, value)
    return formatter.format(record)


def test_a_record_is_one_line_of_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENONNX_SERVE_WORKER", "3")
    assert logs.identify(b"abc-1") == "abc-1"
    line = formatted(logs.JsonLines(), "two\nlines \x1b[31m", path="/v2\r\n", status=200)
    assert "\n" not in line
    assert "\x1b" not in line
    said = json.loads(line)
    assert said["message"] == "two\nlines \x1b[31m"
    assert (said["level"], said["worker"], said["request"]) == ("error", "3", "abc-1")
    assert (said["path"], said["status"]) == ("/v2\r\n", 200)
    assert "ValueError" in said["traceback"]
    assert 'path="/v2\\r\\n"' in formatted(logs.Lines(), "request", path="/v2\r\n")


@pytest.mark.parametrize("given", [None, b"", b"a b", b"a\r\nb", b"x" * 200, b"\xff"])
def test_ids_that_are_no_names_are_replaced(given: bytes | None) -> None:
    assert logs.ID.fullmatch(logs.identify(given))
    assert logs.identify(given) != logs.identify(given)
