"""Concat on several threads is what numpy's is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from running import Watch, session

from models import node
from tenonnx_cpu.data_movement.concat import CONCAT, concat
from tenonnx_cpu.threading_config import most_threads

SHAPES = [
    (((1, 12, 512, 64), (1, 12, 1, 64)), 2),
    (((8, 300, 7), (8, 1, 7), (8, 500, 7)), 1),
    (((40, 50, 60), (40, 50, 3)), -1),
    (((700, 64), (700, 64)), -1),
]


@pytest.mark.parametrize(("shapes", "axis"), SHAPES)
@pytest.mark.parametrize("dtype", ["float32", "int64", "complex128"])
@pytest.mark.parametrize("threads", [2, 4])
def test_parts_lie_side_by_side(shapes: Any, axis: int, dtype: str, threads: int) -> None:
    rng = np.random.default_rng(0)
    arrays = tuple(rng.integers(-99, 99, shape).astype(dtype) for shape in shapes)
    expected = np.concatenate(arrays, axis)
    out = np.zeros_like(expected)
    assert concat(arrays, axis % out.ndim, out, threads)
    assert np.array_equal(out, expected)


def test_what_has_other_strides_is_left_to_numpy() -> None:
    x = np.zeros((64, 64, 64), np.float32)
    out = np.zeros((64, 64, 128), np.float32)
    assert not concat((x, x.swapaxes(0, 1)), 2, out, 4)
    assert not concat((x.astype(np.float16),) * 2, 2, out.astype(np.float16), 4)
    assert not concat((x.reshape(1, -1), x.reshape(1, -1)), 1, out.reshape(1, -1), 4)


@pytest.mark.skipif(most_threads() < 2, reason="there is one core")
def test_concat_of_a_model_takes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Watch(CONCAT, monkeypatch)
    x = np.arange(4 * 40_000, dtype=np.float32).reshape(4, -1)
    one = session([node("Concat", "x y", "z", axis=1)], {"x": x, "y": x}, "z", threads=2)
    for columns in (8, 9, 40_000):  # the first shapes are ``moving``'s
        a = x[:, :columns]
        (z,) = one.run(None, {"x": a, "y": -a})
        assert np.array_equal(z, np.concatenate([a, -a], 1))
    assert kernel.calls == 1
