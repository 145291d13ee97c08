"""The log and the traces of requests over both protocols, which go on from their clients'."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("uvicorn")

import tritonclient.grpc

from commanded import Served, served
from load import question
from servers import double
from tenonnx.errors import EPFail
from tenonnx_serve.tracing import Tracing, route

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = {"traceparent": f"00-{TRACE}-b7ad6b7169203331-01", "x-request-id": "mine-1"}


def ask_by_both(server: Served) -> None:
    assert server.call("POST", "/v2/models/m/infer", question(), PARENT)[0] == 200
    with tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{server.grpc_port}") as client:
        assert client.get_model_metadata("m", headers=PARENT).name == "m"
        with pytest.raises(tritonclient.grpc.InferenceServerException):
            client.get_model_metadata("none", headers=PARENT)


def test_each_request_is_a_line_of_json(tmp_path: Path) -> None:
    double(tmp_path / "m.onnx")
    options = ("--grpc-port", "0", "--log", "json", "--log-requests")
    with served(tmp_path / "m.onnx", *options) as server:
        ask_by_both(server)
    records = [json.loads(line) for line in server.lines if line.startswith("{")]
    found = [record for record in records if record["logger"] == "tenonnx.serve.requests"]
    assert [record["status"] for record in found] == [200, "OK", "NOT_FOUND"]
    assert {record["request"] for record in found} == {"mine-1"}
    assert {record["worker"] for record in found} == {"0"}
    assert found[0]["path"] == "/v2/models/m/infer"
    assert all(record["milliseconds"] > 0 for record in found)


def test_spans_are_below_those_of_clients(tmp_path: Path) -> None:
    pytest.importorskip("opentelemetry.sdk", reason="opentelemetry-sdk is not installed")
    double(tmp_path / "m.onnx")
    environment = {"OTEL_TRACES_EXPORTER": "console", "OTEL_BSP_SCHEDULE_DELAY": "100"}
    options = ("--grpc-port", "0", "--trace")
    with served(tmp_path / "m.onnx", *options, environment=environment) as server:
        ask_by_both(server)
    spans = spans_of("".join(server.lines))
    names = [span["name"] for span in spans]
    service = "inference.GRPCInferenceService"
    assert names == ["POST /v2/models/*/infer", *[f"{service}/ModelMetadata"] * 2]
    assert {span["context"]["trace_id"] for span in spans} == {f"0x{TRACE}"}
    assert spans[0]["attributes"]["http.response.status_code"] == 200


def spans_of(text: str) -> list[dict[str, Any]]:
    """Return the objects that an exporter for consoles has written, between other lines."""
    decoder, found, place = json.JSONDecoder(), [], text.find("{\n")
    while place >= 0:
        span, end = decoder.raw_decode(text, place)
        found.append(span)
        place = text.find("{\n", end)
    return found


def test_traces_that_cannot_be_made_are_refused() -> None:
    if importlib.util.find_spec("opentelemetry") is not None:
        pytest.skip("OpenTelemetry is installed")
    with pytest.raises(EPFail, match="OpenTelemetry is not installed"):
        Tracing()


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/v2/models/a-b/versions/12/infer", "/v2/models/*/versions/*/infer"),
        ("/v2/models/stats", "/v2/models/stats"),
        ("/v2/repository/models/x/load", "/v2/repository/models/*/load"),
        ("/v2", "/v2"),
        ("/" + "x/" * 500, "/x/x/x/x/x/x/x"),
    ],
)
def test_names_of_spans_are_few(path: str, expected: str) -> None:
    assert route(path) == expected
