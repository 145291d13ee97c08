"""Random inputs that compress: multiples of powers of two."""

from __future__ import annotations

from typing import Any

import numpy as np

RNG = np.random.default_rng(0)


def real(*shape: int, dtype: Any = np.float32, scale: float = 1.0) -> Any:
    """Numbers of about normal distribution, of three bits after the point."""
    return (np.round(RNG.standard_normal(shape) * 8) / 8 * scale).astype(dtype)


def positive(*shape: int, low: float = 0.01, high: float = 0.05, dtype: Any = np.float32) -> Any:
    """Scale whose quotients are no simple fractions: nothing lies halfway between integers."""
    levels = np.asarray(RNG.integers(0, 65521, shape))
    return np.asarray(low + (high - low) * levels / 65521).astype(dtype)


def apart(rows: int, count: int) -> Any:
    """Rows of numbers that are all different."""
    return RNG.permuted(np.tile(np.arange(count) / 2, (rows, 1)), axis=1).astype(np.float32)


def whole(dtype: Any, *shape: int) -> Any:
    """Integers of the whole range of a type of bytes."""
    info = np.iinfo(dtype)
    return np.asarray(RNG.integers(info.min, int(info.max) + 1, shape)).astype(dtype)


def below(limit: int, *shape: int, dtype: Any = np.int64) -> Any:
    """Integers from 0 to a limit."""
    return np.asarray(RNG.integers(0, limit, shape)).astype(dtype)


def int32(*values: int) -> Any:
    return np.array(values, np.int32)


def angles(positions: int, pairs: int, dtype: Any = np.float32) -> tuple[Any, Any]:
    """Cache of cosines and sines."""
    at = RNG.integers(0, 64, (positions, pairs)) / 64 * 2 * np.pi
    return np.cos(at).astype(dtype), np.sin(at).astype(dtype)
