"""The time that models run in one warm session."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import tenonnx
from bench.models import MODELS, models


@pytest.mark.parametrize("name", MODELS)
def test_model(benchmark: Any, name: str, quick: bool, tmp_path: Path) -> None:
    buildable = models(quick=quick)
    if name not in buildable:
        pytest.skip(f"there is no {name} model here")
    proto, feeds = buildable[name]()
    onnx.save(proto, path := tmp_path / "model.onnx")
    session = tenonnx.InferenceSession(path, providers=["CPUExecutionProvider"])
    outputs = benchmark(session.run, None, feeds)
    assert all(np.isfinite(output).all() for output in outputs)
