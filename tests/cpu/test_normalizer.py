from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper
from running import Watch, floats, session

from models import node
from tenonnx_array.ml.scale import table
from tenonnx_cpu.ml import normalizer


@pytest.mark.parametrize("norm", normalizer.NORM_CODES)
@pytest.mark.parametrize("shape", [(1, 1), (5, 33), (300, 40), (7,), (0, 3)])
@pytest.mark.parametrize("threads", [1, 4])
def test_quotients_are_numpys_to_the_bit(
    norm: str, shape: tuple[int, ...], threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = floats(*shape)
    if x.size > 9:
        flat = x.reshape(-1)
        flat[:3] = 0, np.nan, -np.inf
        flat[3:5] = 1e-30, 1e30
        x[-1] = 0
    watched = Watch(normalizer.NORMALIZER, monkeypatch)
    layer = node("Normalizer", "x", "y", domain="ai.onnx.ml", norm=norm)
    one = session([layer], {"x": x}, "y", domains={"ai.onnx.ml": 1}, threads=threads)
    kernel = table.find("ai.onnx.ml", "Normalizer", 1)
    assert kernel is not None
    with np.errstate(all="ignore"):
        wanted = kernel.bind(np, {"norm": norm}, 1)(x)
    for _ in range(3):
        np.testing.assert_array_equal(one.run(None, {"x": x})[0], wanted)
    assert bool(watched.calls) == bool(x.size and norm != "MAX")


@pytest.mark.parametrize("norm", normalizer.NORM_CODES)
@pytest.mark.parametrize("dtype", [np.float64, np.int32, np.int64])
def test_quotients_of_other_types_are_numpys(norm: str, dtype: Any) -> None:
    x = (floats(30, 40).astype(np.float64) * 1e6).astype(dtype)
    x[1] = 0
    layer = node("Normalizer", "x", "y", domain="ai.onnx.ml", norm=norm)
    kinds = {"x": int(helper.np_dtype_to_tensor_dtype(x.dtype))}
    one = session([layer], {"x": x}, "y", domains={"ai.onnx.ml": 1}, kinds=kinds)
    kernel = table.find("ai.onnx.ml", "Normalizer", 1)
    assert kernel is not None
    wanted = kernel.bind(np, {"norm": norm}, 1)(x)
    for _ in range(3):
        np.testing.assert_array_equal(one.run(None, {"x": x})[0], wanted)
