"""Models as onnxruntime optimizes, fuses and quantizes them.

``tests/contrib/optimize.py`` writes them. What is not quantized answers as the export does.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tenonnx

FOLDER = Path(__file__).parent / "optimized"
EXPORTS = Path(__file__).parents[1] / "exports"
MODELS = sorted(path for path in FOLDER.iterdir() if path.suffix in (".onnx", ".ort"))


def answers_of(path: Path, exported: Any) -> list[Any]:
    own = path.with_suffix(".npz")
    if own.exists():
        with np.load(own) as arrays:
            return [arrays[name] for name in arrays.files]
    return [exported[name] for name in exported.files if name.startswith("out:")]


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.name)
@pytest.mark.parametrize("level", [0, 99], ids=["plain", "optimized"])
def test_model(path: Path, level: int) -> None:
    options = tenonnx.SessionOptions(graph_optimization_level=tenonnx.GraphOptimizationLevel(level))
    session = tenonnx.InferenceSession(path, options, providers=["cpu"])
    with np.load(EXPORTS / f"{path.stem.split('-')[0]}.npz") as exported:
        feeds = {arg.name: exported[f"in:{arg.name}"] for arg in session.get_inputs()}
        answers = answers_of(path, exported)
    for actual, expected in zip(session.run(None, feeds), answers, strict=True):
        np.testing.assert_allclose(actual, expected.reshape(actual.shape), rtol=2e-4, atol=2e-5)
