"""Cases of sums of products: matrices, attention, recurrent layers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from bench.precision.case import LARGEST, Array, Case, normal, spread, uniform
from bench.precision.rows import softmax

A, B = normal(24, 256), normal(256, 40)
C = normal(40)


def absolutely(function: Any) -> Any:
    """Return what a sum of products is of absolute values."""
    return lambda *xs: function(*(np.abs(x) for x in xs))


def matrices(inner: int) -> list[Array]:
    return [normal(12, inner), spread(0.01, 10, inner, 24)]


MATRICES = [
    Case("MatMul", {"normal": [A, B]}, np.matmul, absolutely(np.matmul), version=13),
    Case(
        "MatMul",
        {"positive": [uniform(0, 1, 16, 4096), uniform(0, 0.1, 4096, 16)]},
        np.matmul,
        absolutely(np.matmul),
        version=13,
        name="many",
    ),
    Case(
        "MatMul",
        {"spread": matrices(300)},
        np.matmul,
        absolutely(np.matmul),
        version=13,
        name="spread",
    ),
    Case(
        "MatMul",
        {
            "row": [normal(1, 512), uniform(0, 1, 512, 64)],
            "stack": [normal(3, 4, 16, 32), uniform(-1, 1, 3, 4, 32, 16)],
        },
        np.matmul,
        absolutely(np.matmul),
        version=13,
        name="row and stack",
        fed=2,
    ),
    Case(
        "Gemm",
        {"normal": [A, B, C]},
        lambda a, b, c: a @ b + c,
        absolutely(lambda a, b, c: a @ b + c),
        version=13,
    ),
    Case(
        "Gemm",
        {"normal": [A, B.T.copy(), C]},
        lambda a, b, c: 0.5 * (a @ b.T) + 2 * c,
        absolutely(lambda a, b, c: 0.5 * (a @ b.T) + 2 * c),
        {"alpha": 0.5, "beta": 2.0, "transB": 1},
        version=13,
        name="alpha, beta, transB",
    ),
    Case(
        "Einsum",
        {"normal": [normal(4, 16, 64), uniform(-1, 1, 4, 64, 24)]},
        lambda a, b: np.einsum("bij,bjk->bik", a, b),
        absolutely(lambda a, b: np.einsum("bij,bjk->bik", a, b)),
        {"equation": "bij,bjk->bik"},
        version=12,
        fed=2,
    ),
    Case(
        "FusedMatMul",
        {"normal": [A, B.T.copy()]},
        lambda a, b: 0.125 * (a @ b.T),
        absolutely(lambda a, b: 0.125 * (a @ b.T)),
        {"alpha": 0.125, "transB": 1},
        domain="com.microsoft",
        version=13,
    ),
    Case("Det", {"normal": [normal(32, 4, 4)]}, np.linalg.det, LARGEST),
]

HEADS = (2, 4, 24, 32)


def attended(q: Array, k: Array, v: Array) -> Array:
    return np.asarray(softmax(q @ np.swapaxes(k, -1, -2) / math.sqrt(q.shape[-1])) @ v)


def attended_size(q: Array, k: Array, v: Array) -> Array:
    return attended(q, k, np.abs(v))


def causal(q: Array, k: Array, v: Array) -> Array:
    scores = q @ np.swapaxes(k, -1, -2) / math.sqrt(q.shape[-1])
    return np.asarray(softmax(np.where(np.tri(q.shape[-2], dtype=bool), scores, -np.inf)) @ v)


def packed(x: Array, heads: int = 4) -> Array:
    return np.swapaxes(x.reshape(*x.shape[:2], heads, -1), 1, 2)


def flat(x: Array) -> Array:
    return np.swapaxes(x, 1, 2).reshape(x.shape[0], x.shape[2], -1)


def multi_head(q: Array, k: Array, v: Array) -> Array:
    return flat(attended(packed(q), packed(k), packed(v)))


QKV = [normal(*HEADS), uniform(-2, 2, *HEADS), spread(0.1, 3, *HEADS)]
FLAT_QKV = [flat(x) for x in QKV]

ATTENTION = [
    Case("Attention", {"normal": QKV}, attended, attended_size, version=23, fed=3),
    Case(
        "Attention",
        {"normal": QKV},
        causal,
        lambda q, k, v: causal(q, k, np.abs(v)),
        {"is_causal": 1},
        "causal",
        version=23,
        fed=3,
    ),
    Case(
        "MultiHeadAttention",
        {"normal": FLAT_QKV},
        multi_head,
        lambda q, k, v: multi_head(q, k, np.abs(v)),
        {"num_heads": 4},
        domain="com.microsoft",
        version=17,
        fed=3,
    ),
    Case(
        "RotaryEmbedding",
        {
            "normal": [
                normal(*HEADS),
                uniform(-1, 1, 24, 16),
                normal(24, 16),
                np.arange(24)[None].repeat(2, 0),
            ]
        },
        None,
        LARGEST,
        version=23,
    ),
]

HIDDEN, WIDTH, STEPS = 24, 16, 12


def recurrent(op: str, gates: int, **attributes: Any) -> Case:
    weights = [
        normal(1, gates * HIDDEN, WIDTH, scale=WIDTH**-0.5),
        normal(1, gates * HIDDEN, HIDDEN, scale=HIDDEN**-0.5),
        normal(1, 2 * gates * HIDDEN, scale=0.1),
    ]
    return Case(
        op,
        {"normal": [normal(STEPS, 3, WIDTH), *weights]},
        None,
        LARGEST,
        {"hidden_size": HIDDEN, **attributes},
        version=14,
    )


CASES = [
    *MATRICES,
    *ATTENTION,
    recurrent("LSTM", 4),
    recurrent("GRU", 3, linear_before_reset=1),
    recurrent("RNN", 1),
]
