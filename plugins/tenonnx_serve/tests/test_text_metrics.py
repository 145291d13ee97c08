"""Metrics of generated texts, in vLLM's names and on the page; malformed messages of gRPC."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("msgspec", reason="tenonnx-serve is not installed")
pytest.importorskip("tokenizers", reason="tenonnx-generate is not installed")

import grpc
from prometheus_client.parser import text_string_to_metric_families

from language import COMPLETIONS, folder_with
from servers import Running, double, serving
from tenonnx_serve.metrics import exposition
from tenonnx_serve.page import page
from tenonnx_serve.settings import Limits, Settings


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    root = tmp_path_factory.mktemp("models")
    folder_with(root / "tiny")
    double(root / "double" / "1" / "model.onnx")
    limits = Limits(waiting=4, seconds=20)
    with serving(Settings(str(root), port=0, grpc_port=0, limits=limits)) as found:
        yield found


def collected(running: Running) -> dict[str, Any]:
    """Return what a supervisor collects of this one process."""
    core = running.server.core
    texts = [
        {"model": each.model.name, "version": each.model.version, **each.load()}
        for each in core.repository.language_models()
    ]
    worker = {
        "number": 0, "pid": 1, "serving": True, "memory": {}, "counted": core.counts.snapshot(),
        "now": {"in_flight": 0, "texts": texts},
    }  # fmt: skip
    return {"started": time.time(), "deaths": 0, "wanted": 1, "retired": {}, "workers": [worker]}


def values(running: Running) -> dict[str, float]:
    text = exposition(collected(running)).decode()
    return {
        sample.name + sample.labels.get("finished_reason", ""): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name.startswith("vllm:") and "le" not in sample.labels
    }


def test_texts_are_counted_in_vllms_names(running: Running) -> None:
    before = values(running)
    for stop in (None, " "):
        said = {"model": "tiny", "prompt": "The with", "max_tokens": 9, "temperature": 0}
        said |= {"stop": stop, "logit_bias": {"32": 100}} if stop else {}
        assert running.call("POST", COMPLETIONS, said)[0] == 200
    found = {name: value - before[name] for name, value in values(running).items()}
    assert found["vllm:prompt_tokens_total"] == 16
    assert 9 <= found["vllm:generation_tokens_total"] <= 18
    assert found["vllm:time_to_first_token_seconds_count"] == 2
    assert found["vllm:e2e_request_latency_seconds_count"] == 2
    assert found["vllm:request_success_totallength"] == 1
    assert found["vllm:request_success_totalstop"] == 1
    assert found["vllm:prefix_cache_hits_total"] <= 7
    assert found["vllm:inter_token_latency_seconds_count"] >= 8
    now = values(running)
    assert now["vllm:num_requests_waiting"] == 0
    assert 0 < now["vllm:kv_cache_usage_perc"] < 1
    first, whole = (
        found[f"vllm:{name}_seconds_sum"] for name in ("time_to_first_token", "e2e_request_latency")
    )
    assert 0 < first < whole


def test_the_only_language_model_needs_no_name_for_its_tokens(running: Running) -> None:
    _, found, _ = running.call("POST", "/tokenize", {"prompt": "The"})
    assert running.call("POST", "/detokenize", {"tokens": found["tokens"]})[1] == {"prompt": "The"}
    assert running.call("GET", "/tokenizer_info")[1] == {
        "bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "model_max_length": 512,
    }  # fmt: skip


def test_the_page_has_a_table_of_language_models(running: Running) -> None:
    text = page(collected(running), running.server.core.repository.index(), "1").decode()
    assert "<h2>Language models</h2>" in text
    assert "First token p50" in text
    said = collected(running)
    said["workers"][0]["counted"]["models"].pop("tiny")
    assert "<h2>Language models</h2>" not in page(said, [], "1").decode()


def test_messages_that_are_none_are_invalid_arguments(running: Running) -> None:
    service = "/inference.GRPCInferenceService"
    with grpc.insecure_channel(running.grpc_address) as channel:
        for name in ("ModelInfer", "ModelConfig", "RepositoryIndex"):
            with pytest.raises(grpc.RpcError) as raised:
                channel.unary_unary(f"{service}/{name}")(b"\xff\xff\xff", timeout=10)
            assert raised.value.code() == grpc.StatusCode.INVALID_ARGUMENT
            assert "malformed" in raised.value.details()
        stream = channel.stream_stream(f"{service}/ModelStreamInfer")
        with pytest.raises(grpc.RpcError) as raised:
            list(stream(iter([b"\xff\xff\xff"]), timeout=10))
        assert raised.value.code() == grpc.StatusCode.INVALID_ARGUMENT
