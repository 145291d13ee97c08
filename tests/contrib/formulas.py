"""Plain mathematics in float64, and one-node runs to hold against it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from rows import Row, feeds_of, model_of

import tenonnx

RNG = np.random.default_rng(0)


def real(*shape: int, dtype: Any = np.float32) -> Any:
    return RNG.standard_normal(shape).astype(dtype)


def bytes_of(*shape: int) -> Any:
    return RNG.integers(0, 256, shape).astype(np.uint8)


def run(op: str, *inputs: Any, outputs: tuple[int, ...] = (0,), **attributes: Any) -> list[Any]:
    row = Row(op, inputs, attributes, outputs)
    session = tenonnx.InferenceSession(model_of(row), providers=["cpu"])
    return session.run(None, feeds_of(row))


def close(actual: Any, expected: Any, tolerance: float = 1e-5) -> None:
    actual, expected = np.asarray(actual), np.asarray(expected)
    assert actual.shape == expected.shape
    np.testing.assert_allclose(
        actual.astype(np.float64), expected.astype(np.float64), rtol=tolerance, atol=tolerance
    )


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-np.float64(x)))


def gelu(x: Any) -> Any:
    return x * (1 + np.vectorize(math.erf)(np.float64(x) / math.sqrt(2))) / 2


def softmax(x: Any) -> Any:
    y = np.exp(np.float64(x) - x.max(-1, keepdims=True))
    return y / y.sum(-1, keepdims=True)


def nibbles(packed: Any) -> Any:
    return np.stack([packed & 15, packed >> 4], -1).reshape(*packed.shape[:-1], -1)


def attended(q: Any, k: Any, v: Any, seen: Any = True) -> Any:
    """One head: (queries, size), (keys, size), (keys, value size)."""
    scores = np.float64(q) @ np.float64(k).T / math.sqrt(q.shape[-1])
    return softmax(np.where(seen, scores, -1e30)) @ np.float64(v)


def rms(x: Any, epsilon: float = 1e-6) -> Any:
    x = np.float64(x)
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + epsilon)
