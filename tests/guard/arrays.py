"""Arrays for rows: the same ones every time."""

from __future__ import annotations

from typing import Any

import numpy as np

MS, ML = "com.microsoft", "ai.onnx.ml"


def f32(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def i64(*values: int) -> Any:
    return np.array(values, np.int64)


def ids(low: int, high: int, *shape: int, dtype: Any = np.int64) -> Any:
    return np.random.default_rng(3).integers(low, high, shape).astype(dtype)


def u8(*shape: int) -> Any:
    return ids(0, 256, *shape, dtype=np.uint8)


def i8(*shape: int) -> Any:
    return ids(-128, 128, *shape, dtype=np.int8)


def step(size: float = 0.1, *shape: int) -> Any:
    return np.full(shape, size, np.float32)


def zero(value: int = 3, *shape: int, dtype: Any = np.uint8) -> Any:
    return np.full(shape, value, dtype)
