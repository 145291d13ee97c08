"""The time until a session is there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import pytest

import tenonnx
from bench.big import save_external, save_inline, stack
from bench.models import models
from bench.transformers import decoder, encoder


def session_of(source: Any) -> tenonnx.InferenceSession:
    options = tenonnx.SessionOptions(weights=tenonnx.WeightRegistry())
    return tenonnx.InferenceSession(source, options, providers=["CPUExecutionProvider"])


@pytest.fixture
def mib(quick: bool) -> int:
    return 16 if quick else 256


@pytest.mark.parametrize("name", ["mlp", "decoder", "forest"])
def test_model_is_loaded(benchmark: Any, name: str, quick: bool, tmp_path: Path) -> None:
    proto, feeds = models(quick=quick)[name]()
    onnx.save(proto, path := tmp_path / "model.onnx")
    session = benchmark(session_of, path)
    assert {given.name for given in session.get_inputs()} == feeds.keys()


@pytest.mark.parametrize("kind", [encoder, decoder])
def test_thousands_of_nodes_are_loaded(
    benchmark: Any, kind: Any, quick: bool, tmp_path: Path
) -> None:
    proto, _ = kind(layers=10 if quick else 170, width=32, heads=4, vocabulary=512)
    onnx.save(proto, path := tmp_path / "model.onnx")
    session = benchmark.pedantic(session_of, args=(path,), rounds=1 if quick else 3)
    assert session.plan.steps


def test_external_data_is_loaded(benchmark: Any, mib: int, tmp_path: Path) -> None:
    proto, _ = stack(mib)
    save_external(proto, path := tmp_path / "model.onnx")
    session = benchmark(session_of, path)
    assert sum(weight.nbytes for weight in session.weights) == mib << 20


def test_inline_data_is_loaded(benchmark: Any, mib: int, tmp_path: Path) -> None:
    save_inline(mib, path := tmp_path / "model.onnx", offset=0)
    session = benchmark(session_of, path)
    assert sum(weight.nbytes for weight in session.weights) == mib << 20


def test_realigned_data_is_loaded(benchmark: Any, mib: int, tmp_path: Path) -> None:
    save_inline(mib, path := tmp_path / "model.onnx", offset=1)
    session_of(path)
    session = benchmark(session_of, path)
    assert session.registry.report().private < 1 << 20


def test_bytes_are_loaded(benchmark: Any, mib: int, tmp_path: Path) -> None:
    save_inline(mib, path := tmp_path / "model.onnx", offset=0)
    session = benchmark(session_of, path.read_bytes())
    assert sum(weight.nbytes for weight in session.weights) == mib << 20


def test_ten_sessions_of_one_file(benchmark: Any, mib: int, tmp_path: Path) -> None:
    proto, _ = stack(mib)
    save_external(proto, path := tmp_path / "model.onnx")

    def ten() -> list[tenonnx.InferenceSession]:
        options = tenonnx.SessionOptions(weights=tenonnx.WeightRegistry())
        return [tenonnx.InferenceSession(path, options) for _ in range(10)]

    sessions = benchmark(ten)
    assert len({weight for session in sessions for weight in session.weights}) == len(
        sessions[0].weights
    )
