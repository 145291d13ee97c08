"""Fixtures of models with one product, for tests of servers that run them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from held import LARGE


def product(rows: int, columns: int, name: str = "model") -> onnx.ModelProto:
    """Return ``y = x @ W`` with a batch of any size."""
    model = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["": 21]>
        {name} (float[n, {rows}] x) => (float[n, {columns}] y) {{ y = MatMul(x, W) }}"""
    )
    weight = np.random.default_rng(0).random((rows, columns), np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weight, "W"))
    return model


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A model with its weight in a file beside it: ``y = x @ weight``."""
    file = tmp_path / "model.onnx"
    onnx.save(product(4, 3), file, save_as_external_data=True, size_threshold=0, location="data")
    return file


@pytest.fixture
def words(tmp_path: Path) -> Path:
    """A model that gives strings back."""
    file = tmp_path / "words.onnx"
    text = """<ir_version: 10, opset_import: ["": 21]>
        words (string[n] x) => (string[n] y) { y = Identity(x) }"""
    onnx.save(onnx.parser.parse_model(text), file)
    return file


@pytest.fixture
def weight(path: Path) -> np.ndarray[Any, Any]:
    return onnx.numpy_helper.to_array(onnx.load(path).graph.initializer[0])


@pytest.fixture(scope="session")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A product with a matrix of 134 MB in a file beside it."""
    path = tmp_path_factory.mktemp("large") / "large.onnx"
    model = product(LARGE, LARGE, "large")
    onnx.save(model, path, save_as_external_data=True, size_threshold=0, location="data")
    return path
