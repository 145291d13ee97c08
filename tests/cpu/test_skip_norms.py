"""Normalized sums of com.microsoft on kernels, against numpy's and float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from running import Watch, floats, require_kernels, session

from models import node
from tenonnx_cpu.norm.norms import NORMALIZE

require_kernels()

DOMAIN = "com.microsoft"


@pytest.mark.parametrize("op", ["SkipLayerNormalization", "SkipSimplifiedLayerNormalization"])
@pytest.mark.parametrize("extras", ["", "beta", "bias"])
@pytest.mark.parametrize("shape", [(1, 1, 96), (2, 5, 40)])
def test_sums(op: str, extras: str, shape: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    centered = op == "SkipLayerNormalization"
    if extras == "beta" and not centered:
        extras = ""  # it has none
    x, skip, gamma = floats(*shape), floats(*shape, seed=1), floats(shape[-1], seed=2)
    feeds = {"x": x, "s": skip, "g": gamma}
    names = "x s g"
    if extras:
        feeds[extras] = floats(shape[-1], seed=3)
        names += " _ bias" if extras == "bias" and centered else f" {extras}"
    watch = Watch(NORMALIZE, monkeypatch)
    made = node(op, names, "y", domain=DOMAIN, epsilon=1e-5)
    made.output.extend(["", "", "sum"])
    y, total = session([made], feeds, "y sum", domains={DOMAIN: 1}).run(None, feeds)
    assert watch.calls == 1
    wide = x.astype(np.float64) + skip + (feeds["bias"] if extras == "bias" else 0)
    np.testing.assert_allclose(total, wide, rtol=1e-6, atol=1e-6)
    mean = wide.mean(-1, keepdims=True) if centered else 0
    square = ((wide - mean) ** 2).mean(-1, keepdims=True)
    answer = (wide - mean) / np.sqrt(square + 1e-5) * gamma
    answer += feeds["beta"] if extras == "beta" else 0
    np.testing.assert_allclose(y, answer, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("axis", [-1, 2, 1])
def test_root_mean_squares(axis: int, monkeypatch: pytest.MonkeyPatch) -> None:
    x = floats(2, 5, 40)
    scale = floats(40) if axis != 1 else floats(5, 40)
    watch = Watch(NORMALIZE, monkeypatch)
    feeds = {"x": x, "g": scale}
    made = node("SimplifiedLayerNormalization", "x g", "y", axis=axis, epsilon=1e-5)
    (y,) = session([made], feeds, "y").run(None, feeds)
    assert watch.calls == (axis != 1)
    wide = x.astype(np.float64)
    axes = (1, 2) if axis == 1 else (2,)
    answer = wide / np.sqrt((wide**2).mean(axes, keepdims=True) + 1e-5) * scale
    np.testing.assert_allclose(y, answer, rtol=1e-5, atol=1e-5)
