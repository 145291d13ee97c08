"""Norms of channels and of groups of them, beside the formula in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from running import Watch, floats, run

from models import node
from tenonnx_cpu.conv.channel_norms import NORMALIZE

SHAPES = [(1, 1, 50_000), (2, 6, 5, 7), (3, 4, 9), (1, 32, 40, 41), (2, 4, 3, 4, 5)]


@pytest.mark.parametrize(
    ("shape", "groups"),
    [(shape, groups) for shape in SHAPES for groups in (0, 1, 2) if not shape[1] % (groups or 1)],
    ids=str,
)
@pytest.mark.parametrize("threads", [1, 4])
def test_every_group_is_normalized(
    shape: Any, groups: int, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = Watch(NORMALIZE, monkeypatch)
    channels = shape[1]
    x = floats(*shape) * 3 + 50
    weights = {"s": floats(channels, seed=1), "b": floats(channels, seed=2)}
    kind = "GroupNormalization" if groups else "InstanceNormalization"
    more = {"num_groups": groups} if groups else {}
    y = run([node(kind, "x s b", "y", epsilon=1e-3, **more)], {"x": x}, "y", weights,
            threads=threads)  # fmt: skip
    assert watch.calls == 1
    rows = x.astype(np.float64).reshape(shape[0], groups or channels, -1)
    rows = (rows - rows.mean(2, keepdims=True)) / np.sqrt(rows.var(2, keepdims=True) + 1e-3)
    column = (-1, *[1] * (len(shape) - 2))
    expected = rows.reshape(shape) * weights["s"].reshape(column) + weights["b"].reshape(column)
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=2e-5)


def test_groups_with_a_factor_each_are_left_to_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch(NORMALIZE, monkeypatch)
    nodes = [node("GroupNormalization", "x s b", "y", num_groups=2)]
    weights = {"s": floats(2, seed=1), "b": floats(2, seed=2)}
    y = run(nodes, {"x": floats(2, 4, 5)}, "y", weights, opset=18)
    assert watch.calls == 0
    assert y.shape == (2, 4, 5)
