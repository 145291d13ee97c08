"""Attention against its definition, one query at a time; rotation as complex numbers."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from case import Case
from formula import RNG

BF16 = ml_dtypes.bfloat16


def normal(*shape: int, dtype: Any = np.float32) -> Any:
    return RNG.standard_normal(shape).astype(dtype)


def attend(
    Q: Any,
    K: Any,
    V: Any,
    mask: Any = None,
    past_key: Any = None,
    past_value: Any = None,
    lengths: Any = None,
    *,
    scale: float | None = None,
    causal: bool = False,
    window: tuple[int, int] = (99, 99),
    softcap: float = 0.0,
    mode: int = 0,
) -> Any:
    dtype = Q.dtype
    if past_key is not None:
        K, V = np.concatenate((past_key, K), 2), np.concatenate((past_value, V), 2)
    (batch, heads, queries, size), (_, groups, keys, _) = Q.shape, K.shape
    Y = np.zeros((batch, heads, queries, V.shape[-1]))
    taken = np.zeros((batch, heads, queries, keys))
    for n, h, i in np.ndindex(batch, heads, queries):
        k, v = (x[n, h * groups // heads].astype(float) for x in (K, V))
        scores = k @ Q[n, h, i].astype(float) * (size**-0.5 if scale is None else scale)
        stages = [scores]
        if softcap:
            scores = softcap * np.tanh(scores / softcap)
        stages.append(scores)
        valid = keys if lengths is None else lengths[n]
        before = valid - queries if lengths is not None else keys - K.shape[2] + offset(past_key)
        seen = [
            j < valid
            and (not causal or j <= i + before)
            and i + before - window[0] <= j <= i + before + window[1]
            for j in range(keys)
        ]
        if mask is not None:
            row = np.broadcast_to(mask, (batch, heads, queries, mask.shape[-1]))[n, h, i]
            if mask.dtype == bool:
                seen = [j < len(row) and bool(row[j]) and s for j, s in enumerate(seen)]
            else:
                bias = np.full(keys, -np.inf)
                bias[: len(row)] = row
                scores = scores + bias
        scores = np.where(seen, scores, -np.inf)
        stages.append(scores)
        weights = np.exp(scores - max(scores.max(), -1e9))
        stages.append(weights / max(weights.sum(), 1e-30))
        Y[n, h, i], taken[n, h, i] = stages[3] @ v, stages[mode]
    return Y.astype(dtype), K, V, taken.astype(dtype)


def offset(past: Any) -> int:
    return 0 if past is None else past.shape[2]


def oracle(**options: Any) -> Any:
    return lambda *inputs: attend(*inputs, **options)


def rotated(X: Any, cos: Any, sin: Any, turned: int, interleaved: bool) -> Any:
    """X of shape (batch, heads, length, size), angles of shape (batch, length, pairs)."""
    angle = (cos + 1j * sin)[:, None]
    Y = X.astype(float)
    if interleaved:
        first, second = slice(0, turned, 2), slice(1, turned, 2)
    else:
        first, second = slice(turned // 2), slice(turned // 2, turned)
    z = (X[..., first] + 1j * X[..., second]) * angle
    Y[..., first], Y[..., second] = z.real, z.imag
    return Y.astype(X.dtype)


def packed(x: Any) -> Any:
    return x.swapaxes(1, 2).reshape(x.shape[0], x.shape[2], -1)


def grouped(length: int = 3, keys: int = 7, dtype: Any = np.float32) -> list[Any]:
    return [
        normal(2, 6, length, 4, dtype=dtype),
        normal(2, 2, keys, 4, dtype=dtype),
        normal(2, 2, keys, 5, dtype=dtype),
    ]


GQA, PAST, SQUARE = grouped(), grouped(3, 2), grouped(7, 7)
CACHE = [normal(2, 2, 4, 4), normal(2, 2, 4, 5)]
FLOAT_MASK = np.where(RNG.random((6, 3, 7)) < 0.3, -np.inf, normal(6, 3, 7)).astype(np.float32)
BOOL_MASK = RNG.random((2, 1, 7, 5)) < 0.6
BOOL_MASK[0, 0, 2] = False
LENGTHS = np.array([2, 6])
HEADS = {"q_num_heads": 6, "kv_num_heads": 2}

X = normal(2, 3, 5, 6)
POSITIONS = RNG.integers(0, 9, (2, 5))
ANGLES = normal(9, 2)
COS, SIN = np.cos(ANGLES), np.sin(ANGLES)
WIDE_ANGLES = normal(2, 5, 3)

QUERY, KEY, VALUE = normal(2, 5, 12), normal(2, 5, 6), normal(2, 5, 8)
DECAY, BETA = -np.abs(normal(2, 5, 2)), np.abs(normal(2, 5, 1))


def recurrent(q: Any, k: Any, v: Any, past: Any, decay: Any, beta: Any) -> Any:
    """Gated delta rule: 4 query heads, 2 of keys, sizes 3 and 4."""
    state = np.zeros((2, 2, 3, 4)) if past is None else past.astype(float)
    y = np.zeros((2, 5, 16))
    for n, t, h in np.ndindex(2, 5, 4):
        g = h // 2
        if h % 2 == 0:
            key, value = k[n, t, 3 * g : 3 * g + 3], v[n, t, 4 * g : 4 * g + 4]
            kept = np.exp(decay[n, t, g]) * state[n, g]
            state[n, g] = kept + beta[n, t, 0] * np.outer(key, value - kept.T @ key)
        y[n, t, 4 * h : 4 * h + 4] = 0.5 * q[n, t, 3 * h : 3 * h + 3] @ state[n, g]
    return y.astype(np.float32), state.astype(np.float32)


CASES = [
    Case("Attention", 23, [*GQA, FLOAT_MASK], oracle(mode=2), {"qk_matmul_output_mode": 2}),
    Case(
        "Attention",
        23,
        [*PAST, None, *CACHE],
        oracle(causal=True, softcap=0.7, mode=1),
        {"is_causal": 1, "softcap": 0.7, "qk_matmul_output_mode": 1},
        name="past",
    ),
    Case(
        "Attention",
        23,
        [packed(x) for x in GQA],
        lambda *_: (packed(attend(*GQA, scale=0.3)[0]), *GQA[1:]),
        HEADS | {"scale": 0.3},
        name="packed",
    ),
    Case(
        "Attention",
        24,
        [*SQUARE, BOOL_MASK],
        oracle(causal=True, mode=3),
        {"is_causal": 1, "qk_matmul_output_mode": 3, "softmax_precision": 11},
        name="short-mask",
    ),
    Case(
        "Attention",
        24,
        [*GQA, None, None, None, LENGTHS],
        oracle(causal=True),
        {"is_causal": 1},
        name="external-cache",
    ),
    Case(
        "Attention",
        25,
        [*PAST, None, *CACHE],
        oracle(window=(1, 1)),
        {"left_window_size": 1, "right_window_size": 1},
        name="window",
    ),
    Case(
        "Attention",
        25,
        [*SQUARE, None, None, None, np.array([7, 4])],
        oracle(causal=True, window=(2, 0)),
        {"left_window_size": 2, "right_window_size": 3, "is_causal": 1},
        name="causal-window",
    ),
    Case("Attention", 25, grouped(dtype=np.float64), oracle(), rtol=1e-12, name="double"),
    Case("Attention", 25, grouped(dtype=BF16), oracle(), rtol=2**-7, atol=1e-3, name="bfloat16"),
    Case(
        "Attention",
        25,
        [*(x[:, :, :0] if i else x for i, x in enumerate(GQA)), FLOAT_MASK[..., :0]],
        np.zeros((2, 6, 3, 5), np.float32),
        name="no-keys",
    ),
    Case(
        "RotaryEmbedding",
        23,
        [X, COS, SIN, POSITIONS],
        lambda x, c, s, at: rotated(x, c[at], s[at], 4, True),
        {"interleaved": 1, "rotary_embedding_dim": 4},
    ),
    Case(
        "RotaryEmbedding",
        23,
        [packed(X), np.cos(WIDE_ANGLES), np.sin(WIDE_ANGLES)],
        lambda _, c, s: packed(rotated(X, c, s, 6, False)),
        {"num_heads": 3},
        name="packed",
    ),
    Case(
        "LinearAttention",
        27,
        [QUERY, KEY, VALUE, None, DECAY, BETA],
        recurrent,
        {"q_num_heads": 4, "kv_num_heads": 2, "scale": 0.5},
    ),
    Case(
        "LinearAttention",
        27,
        [QUERY, KEY, VALUE, normal(2, 2, 3, 4), DECAY, BETA],
        recurrent,
        {"q_num_heads": 4, "kv_num_heads": 2, "scale": 0.5, "chunk_size": 2},
        name="past",
    ),
]
