"""The provider in one file of ``examples/plugins`` keeps to the contract, and classifies digits."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest
from rounded import ROUNDED

import tenonnx
from tenonnx.testing import ProviderTests

pytest.importorskip("mlx.core", reason="MLX is not installed; tox -e frameworks")

EXAMPLES = Path(__file__).parents[2] / "examples"
FILE = EXAMPLES / "plugins/mlx_provider.py"
spec = importlib.util.spec_from_file_location("mlx_provider", FILE)
assert spec is not None
assert spec.loader is not None
mlx_provider = importlib.util.module_from_spec(spec)
sys.modules[spec.name] = mlx_provider
spec.loader.exec_module(mlx_provider)


class TestMlx(ProviderTests):
    provider = mlx_provider.MlxExecutionProvider
    cases = "test_[acefgmnr]*"
    gaps = ROUNDED
    copies = "MLX holds arrays in memory of its own"
    examples = 5


def test_it_takes_part_in_classifying_digits() -> None:
    plugins = tenonnx.PluginSet()
    plugins.register_file(FILE)
    options = tenonnx.SessionOptions(plugins=plugins)
    model = EXAMPLES / "digits/digits.onnx"
    session = tenonnx.InferenceSession(model, options, providers=["mlx"])
    assert session.placement.counts() == {"MlxExecutionProvider": len(session.model.graph)}
    held_out = np.load(EXAMPLES / "digits/heldout.npz")
    images = held_out["images"].astype(np.float32)[:, None] / 16
    (logits,) = session.run(None, {"image": images})
    assert (logits.argmax(axis=1) == held_out["labels"]).sum() == 449
