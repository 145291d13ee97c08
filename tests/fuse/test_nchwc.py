"""Convolutional networks in onnxruntime's own layout, as its optimized models have them.

``tests/contrib/optimize.py`` writes the network, on a machine with blocks of sixteen channels.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tenonnx
from fusing import normal
from tenonnx_fuse import nchwc

BLOCKED = Path(__file__).parents[1] / "contrib" / "blocked.onnx"


def blocked(filters: np.ndarray[Any, Any], block: int, group: int) -> np.ndarray[Any, Any]:
    """Put filters in blocks one by one, as onnxruntime's MLAS documents its two formats."""
    outer, inner, height, width = filters.shape
    each = 1 if (inner == 1 if group > 1 else inner < block) else block
    out = []
    for o, i in itertools.product(range(0, outer, block), range(0, inner, each)):
        for y, x in itertools.product(range(height), range(width)):
            for b in range(each):
                out += [filters[o + k, i + b, y, x] for k in range(block)]
    return np.array(out, filters.dtype).reshape(filters.shape)


@pytest.mark.parametrize("block", [8, 16])
@pytest.mark.parametrize(
    ("shape", "group"),
    [((32, 3, 3, 3), 1), ((16, 16, 1, 1), 1), ((48, 32, 2, 3), 1), ((64, 1, 3, 3), 64),
     ((32, 16, 3, 1), 2)],
)  # fmt: skip
def test_filters_are_put_in_order(shape: tuple[int, ...], group: int, block: int) -> None:
    filters = normal(*shape)
    laid = blocked(filters, block, group)
    assert not np.array_equal(laid, filters)
    np.testing.assert_array_equal(nchwc.unblocked(laid, block, group), filters)


@pytest.mark.parametrize("level", [0, 99], ids=["plain", "optimized"])
def test_network(level: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nchwc, "_native_block", lambda: 16)
    options = tenonnx.SessionOptions(graph_optimization_level=tenonnx.GraphOptimizationLevel(level))
    session = tenonnx.InferenceSession(BLOCKED, options, providers=["cpu"])
    assert {node.domain for node in session.model.graph} <= {"", "com.microsoft"}
    with np.load(BLOCKED.with_suffix(".npz")) as arrays:
        for arg, value in zip(
            session.get_outputs(),
            session.run(None, {name: arrays[f"in:{name}"] for name in "xz"}),
            strict=True,
        ):
            expected = arrays[f"out:{arg.name}"]
            np.testing.assert_allclose(value, expected, rtol=1e-4, atol=1e-5)
