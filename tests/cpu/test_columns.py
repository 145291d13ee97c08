from __future__ import annotations

import numpy as np
import pytest
from running import session

import tenonnx
from models import FLOAT, node
from tenonnx_cpu.ml import columns

KEYS = ["a", "b", "c"]
ML = "ai.onnx.ml"


@pytest.mark.parametrize("rows", [0, 1, 7, 20])
@pytest.mark.parametrize("chosen", [(0, 1, 2), (2, 0), (1, 1, 1, 1)])
@pytest.mark.parametrize("is_hot", [False, True])
@pytest.mark.parametrize("few", [0, 64])
def test_columns_are_encoded_as_one_by_one(
    rows: int, chosen: tuple[int, ...], is_hot: bool, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(columns, "MAX_DICTIONARY_WORDS", few)
    x = np.random.default_rng(0).choice(["a", "b", "c", "?"], (rows, 3))
    nodes, weights = [], {}
    for number, place in enumerate(chosen):
        weights[f"i{number}"] = np.array([place])
        nodes.append(node("ArrayFeatureExtractor", f"x i{number}", f"c{number}", domain=ML))
        how = (
            {"cats_strings": KEYS} if is_hot else {"keys_strings": KEYS, "values_floats": [1, 2, 3]}
        )
        encoder = "OneHotEncoder" if is_hot else "LabelEncoder"
        nodes.append(node(encoder, f"c{number}", f"e{number}", domain=ML, **how))
    joined = " ".join(f"e{number}" for number in range(len(chosen)))
    nodes.append(node("Concat", joined, "y", axis=-1))
    found = []
    for level in ("ORT_ENABLE_ALL", "ORT_DISABLE_ALL"):
        one = session(
            nodes, {"x": x}, "y", weights, domains={ML: 2}, kinds={"x": 8, "y": FLOAT},
            level=tenonnx.GraphOptimizationLevel[level],
        )  # fmt: skip
        found.append(one.run(None, {"x": x})[0])
        assert len(one.plan.steps) == (1 if level == "ORT_ENABLE_ALL" else len(nodes))
    assert found[0].shape == (rows, *(1,) * is_hot, len(chosen) * (3 if is_hot else 1))
    assert found[0].flags.writeable
    np.testing.assert_array_equal(*found)
