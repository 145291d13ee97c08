"""Every exported model after all transforms, on a provider that declines none of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fusing import session

MODELS = sorted((Path(__file__).parents[1] / "exports").glob("*.onnx"))


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
@pytest.mark.parametrize("level", [1, 2, 99])
def test_export(path: Path, level: int) -> None:
    arrays = np.load(path.with_suffix(".npz"))
    done = session(path, level)
    wanted = {arg.name for arg in done.get_inputs()}
    names = [name for name in arrays.files if name.startswith("in:")]
    outputs = done.run(None, {n[3:]: arrays[n] for n in names if n[3:] in wanted})
    expected = [arrays[name] for name in arrays.files if name.startswith("out:")]
    for actual, answer in zip(outputs, expected, strict=False):
        if answer.dtype.kind == "f":
            answer = answer.reshape(actual.shape)
            np.testing.assert_allclose(actual, answer, rtol=2e-4, atol=2e-5)
        else:
            np.testing.assert_array_equal(actual, answer)


FOUND = {
    "bert": {"Attention": 2, "LayerNormalization": 5, "Gelu": 2},
    "distilbert-dynamo": {"Attention": 2},
    "gpt2": {"Attention": 2, "Gelu": 2},
    "llama": {"Attention": 2, "RMSNormalization": 5, "Swish": 2, "Expand": 0},
    "llama-dynamo": {"Attention": 2, "RMSNormalization": 5, "Swish": 2, "Expand": 0},
    "phi3": {"Attention": 2, "RMSNormalization": 5},
    "qwen2-dynamo": {"Attention": 2, "RMSNormalization": 5},
    "t5": {"Attention": 6, "RMSNormalization": 12},
    "t5-dynamo": {"Attention": 6, "RMSNormalization": 12},
    "vit": {"Attention": 2},
    "whisper": {"Attention": 6},
    "clip-dynamo": {"Attention": 4},
    "gptneox-dynamo": {"Attention": 2, "Gelu": 2},
    "mixtral": {"Attention": 2, "RMSNormalization": 5, "Swish": 2},
    "mixtral-dynamo": {"Attention": 2, "RMSNormalization": 5, "Swish": 2},
    "modernbert-dynamo": {"Attention": 2},
    "wav2vec2-dynamo": {"Attention": 2},
}
"""Operators that models have by their architecture, however they were exported."""


@pytest.mark.parametrize("name", FOUND)
def test_what_is_found_in_exports(name: str) -> None:
    path = Path(__file__).parents[1] / "exports" / f"{name}.onnx"
    kinds = [node.op_type for node in session(path).model.graph]
    assert {kind: kinds.count(kind) for kind in FOUND[name]} == FOUND[name]
