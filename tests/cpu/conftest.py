"""Models that several tests of kernels load from a file."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from models import FLOAT, model, node, value


@pytest.fixture(scope="module")
def pooling(tmp_path_factory: pytest.TempPathFactory) -> Path:
    proto = model(
        [node("GlobalAveragePool", "x", "y")],
        [value("x", FLOAT, [1, 8, 64, 64])],
        [value("y")],
    )
    path = tmp_path_factory.mktemp("model") / "pooling.onnx"
    onnx.save(proto, path)
    return path
