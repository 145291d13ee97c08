from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from running import floats, require_kernels, session

from models import node
from tenonnx_cpu.conv.select import CONV

require_kernels()


@pytest.mark.parametrize("size", [(16, 16), (35, 50)])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("threads", [1, 4])
def test_windows_side_by_side_are_one_product(
    size: tuple[int, int], biased: bool, threads: int, monkeypatch: Any
) -> None:
    monkeypatch.setattr(CONV, "run", None)
    x, w, b = floats(2, 3, *size), floats(20, 3, 8, 8, seed=1) / 8, floats(20, seed=2)
    weights = {"w": w, "shape": np.array([0, 0, -1])} | ({"b": b} if biased else {})
    nodes = [
        node("Conv", "x w b" if biased else "x w", "image", strides=[8, 8]),
        node("Reshape", "image shape", "flat"),
        node("Transpose", "flat", "y", perm=[0, 2, 1]),
    ]
    y = session(nodes, {"x": x}, "y", weights, threads=threads).run(None, {"x": x})[0]
    down, across = size[0] // 8, size[1] // 8
    windows = np.lib.stride_tricks.sliding_window_view(x.astype(np.float64), (8, 8), axis=(2, 3))
    windows = windows[:, :, ::8, ::8][:, :, :down, :across]
    expected = np.einsum("bcijuv,ocuv->bijo", windows, w) + (b if biased else 0)
    assert y.flags.c_contiguous
    np.testing.assert_allclose(y, expected.reshape(2, down * across, 20), rtol=1e-4, atol=1e-5)


def test_an_image_that_stays_one_is_convolved() -> None:
    nodes = [node("Conv", "x w", "image", strides=[8, 8]), node("Relu", "image", "y")]
    x, w = floats(1, 3, 16, 16), floats(4, 3, 8, 8, seed=1)
    steps = session(nodes, {"x": x}, "y", {"w": w}).plan.steps
    assert [len(step.nodes) for step in steps] == [2]
