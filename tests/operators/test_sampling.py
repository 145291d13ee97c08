"""Random operators: distribution, dtype, and seeds."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tenonnx_array import TABLE

N = 40_000


def run(op: str, *inputs: Any, outputs: int = 1, **attributes: Any) -> Any:
    kernel = TABLE.find("", op, 22)
    assert kernel is not None
    return kernel.bind(np, attributes, outputs)(*inputs)


@pytest.mark.parametrize("seed", [None, 0.0, 3.0, -1.0, 0.25])
def test_uniform_is_flat(seed: float | None) -> None:
    draws = run("RandomUniform", shape=(N,), low=-1.0, high=3.0, seed=seed)
    counts, _ = np.histogram(draws, bins=8, range=(-1, 3))
    assert counts.sum() == N
    assert np.abs(counts / N - 1 / 8).max() < 0.01


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float64])
def test_normal_has_the_input_dtype_mean_and_scale(dtype: type) -> None:
    draws = run("RandomNormalLike", np.zeros((N,), dtype), mean=2.0, scale=0.5, seed=1.0)
    assert draws.dtype == dtype
    wide = draws.astype(np.float64)
    assert abs(wide.mean() - 2) < 0.02
    assert abs(wide.std() - 0.5) < 0.02


@pytest.mark.parametrize("op", ["RandomNormal", "RandomUniform"])
def test_scalar_shape(op: str) -> None:
    assert run(op, shape=()).shape == ()
    assert run(op + "Like", np.float32(1)).dtype == np.float32


def test_seeds_repeat_and_differ() -> None:
    def draw(seed: float | None) -> list[float]:
        return run("RandomUniform", shape=(4,), seed=seed).tolist()

    assert draw(0.25) == draw(0.25)
    assert len({tuple(draw(seed)) for seed in (None, None, 0.0, 0.25, 0.75, 1.0)}) == 6


def test_bernoulli_follows_each_probability() -> None:
    p = np.repeat(np.array([0, 0.1, 0.7, 1], np.float32), N).reshape(4, N)
    draws = run("Bernoulli", p, dtype=9)
    assert draws.dtype == bool
    np.testing.assert_allclose(draws.mean(1), [0, 0.1, 0.7, 1], atol=0.015)


def test_multinomial_follows_unnormalized_logs() -> None:
    weights = np.array([[1, 0, 3, 4], [2, 2, 0, 0], [0, 0, 0, 9]])
    with np.errstate(divide="ignore"):
        logs = np.log(weights).astype(np.float32) + 5
    draws = run("Multinomial", logs, sample_size=N, seed=2.0)
    assert draws.dtype == np.int32
    shares = [np.bincount(row, minlength=4) / N for row in draws]
    np.testing.assert_allclose(shares, weights / weights.sum(1, keepdims=True), atol=0.015)
    assert (np.array(shares)[weights == 0] == 0).all()


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, ml_dtypes.float8_e4m3fn])
def test_dropout_keeps_the_mean(dtype: type) -> None:
    x = np.ones((N,), dtype)
    ratio, training = np.array(0.5, np.float32), np.array(True)
    output, mask = run("Dropout", x, ratio, training, seed=5, outputs=2)
    assert output.dtype == dtype
    assert abs(mask.mean() - 0.5) < 0.01
    expected = np.where(mask, np.array(2, dtype), np.array(0, dtype))
    np.testing.assert_array_equal(output.astype(np.float64), expected.astype(np.float64))
