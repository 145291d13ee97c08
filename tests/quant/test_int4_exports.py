"""Exported networks with weights of four bits: ONNX's reference, and every way to run them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

import tenonnx
import tenonnx_quant

EXPORTS = Path(__file__).parents[1] / "exports"
NAMES = ("distilbert", "gpt2", "llama", "qwen2", "phi3", "gemma2", "t5", "whisper")


@pytest.mark.parametrize("symmetric", [True, False], ids=["symmetric", "asymmetric"])
@pytest.mark.parametrize("name", [f"{name}-dynamo" for name in NAMES])
def test_int4_export(
    name: str, symmetric: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENONNX_JIT", "0")  # kernels round activations, as tests/cpu checks
    source = EXPORTS / f"{name}.onnx"
    with np.load(source.with_suffix(".npz")) as arrays:
        feeds = {key[3:]: arrays[key] for key in arrays.files if key.startswith("in:")}
        exact = {key[4:]: arrays[key] for key in arrays.files if key.startswith("out:")}
    expected = None
    for form in ("qdq", "matmulnbits"):
        scheme = tenonnx_quant.WeightScheme(block_size=16, symmetric=symmetric, form=form)
        report = tenonnx_quant.quantize_weights(source, path := tmp_path / f"{form}.onnx", scheme)
        assert report.bytes_after < report.bytes_before / 2
        if expected is None:
            expected = ReferenceEvaluator(str(path)).run(None, feeds)
            errors = [np.abs(a - b).max() for a, b in zip(expected, exact.values(), strict=True)]
            assert max(errors) > 1e-4, "nothing was rounded"
        for level in (0, 99):
            options = tenonnx.SessionOptions(
                graph_optimization_level=tenonnx.GraphOptimizationLevel(level)
            )
            for actual, answer in zip(
                tenonnx.InferenceSession(path, options).run(None, feeds), expected, strict=True
            ):
                scale = float(np.abs(answer).max())
                np.testing.assert_allclose(actual, answer, rtol=2e-4, atol=2e-5 * scale)
