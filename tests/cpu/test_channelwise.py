"""Operations on each channel alone that no convolution computes along with its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto
from running import Watch, floats, run

from models import node
from tenonnx_cpu.elementwise.program import RUN_PROGRAM
from tenonnx_cpu.elementwise.typed import APPLY

SHAPES = [(5, 96), (2, 7, 100), (1, 20, 31, 33), (2, 3, 4, 5, 60)]
NORM = [node("BatchNormalization", "x gain shift mean var", "y", epsilon=1e-3)]


def per_channel(values: Any, rank: int) -> Any:
    return values.astype(np.float64).reshape(-1, *(1,) * (rank - 2))


def statistics(channels: int) -> dict[str, Any]:
    gain, shift, mean, spread = (floats(channels, seed=n) for n in range(1, 5))
    return {"gain": gain, "shift": shift, "mean": mean, "var": spread**2}


def normalized(x: Any, gain: Any, shift: Any, mean: Any, var: Any) -> Any:
    g, s, m, v = (per_channel(a, x.ndim) for a in (gain, shift, mean, var))
    return (x.astype(np.float64) - m) / np.sqrt(v + 1e-3) * g + s


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("threads", [1, 4])
def test_batch_normalization(shape: Any, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Watch(APPLY, monkeypatch)
    x, weights = floats(*shape), statistics(shape[1])
    y = run(NORM, {"x": x}, "y", weights, threads=threads)
    assert kernel.calls == 1
    expected = normalized(x, **weights)
    scale = np.abs(weights["gain"] / np.sqrt(weights["var"] + 1e-3)).max() * 8
    assert np.abs(y - expected).max() <= 1e-6 * scale


def test_batch_normalization_of_what_the_kernel_does_not_take() -> None:
    weights = statistics(3)
    x = floats(2, 3, 4)
    y = run(NORM, {"x": x, **weights}, "y")
    assert np.abs(y - normalized(x, **weights)).max() < 1e-4
    narrow = x.astype(np.float16)
    y = run(
        NORM,
        {"x": narrow},
        "y",
        weights,
        kinds=dict.fromkeys("xy", TensorProto.FLOAT16),
    )
    assert y.dtype == np.float16
    assert np.abs(y - normalized(narrow, **weights)).max() < 0.05


@pytest.mark.parametrize("shape", SHAPES)
def test_prelu(shape: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Watch(RUN_PROGRAM, monkeypatch)
    x = floats(*shape)
    slope = floats(shape[1], *(1,) * (len(shape) - 2), seed=1)
    y = run([node("PRelu", "x slope", "y")], {"x": x}, "y", {"slope": slope})
    assert kernel.calls == 1
    np.testing.assert_array_equal(y, np.where(x < 0, slope * x, x))
