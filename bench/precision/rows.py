"""Cases of reductions, of Softmax and its kin, and of norms."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from bench.precision.case import Array, Case, Sample, normal, spread, uniform
from bench.precision.pointwise import single

SHAPE = (8, 64, 96)
LONG = (4, 16384)

SIGNED: dict[str, Sample] = {
    "normal": [normal(*SHAPE)],
    "spread": [spread(1e-3, 1e2, *SHAPE)],
}
ABOVE_ZERO: dict[str, Sample] = {
    "uniform": [uniform(0, 1, *SHAPE)],
    "spread": [spread(1e-3, 1e2, *SHAPE, signed=False)],
}
MANY: dict[str, Sample] = {"many": [uniform(0, 1, *LONG)]}
FACTORS: dict[str, Sample] = {"near 1": [np.exp(normal(*SHAPE, scale=0.05))]}

Reduce = Callable[..., Array]


def log_sum_exp(x: Array, **how: Any) -> Array:
    return np.asarray(np.log(np.sum(np.exp(x), **how)))


def one(x: Array, **how: Any) -> Array:
    return np.ones_like(np.sum(x, **how))


# By operator: the formula, and the sum of absolute values.
REDUCTIONS: dict[str, tuple[Reduce, Reduce | None]] = {
    "ReduceSum": (np.sum, lambda x, **how: np.sum(np.abs(x), **how)),
    "ReduceMean": (np.mean, lambda x, **how: np.mean(np.abs(x), **how)),
    "ReduceL1": (lambda x, **how: np.sum(np.abs(x), **how), None),
    "ReduceL2": (lambda x, **how: np.sqrt(np.sum(x * x, **how)), None),
    "ReduceSumSquare": (lambda x, **how: np.sum(x * x, **how), None),
    # What a sum is off by moves its logarithm by as much, however close to 0 that is.
    "ReduceLogSum": (lambda x, **how: np.log(np.sum(x, **how)), one),
    "ReduceLogSumExp": (log_sum_exp, one),
    "ReduceProd": (np.prod, None),
    "ReduceMax": (np.max, None),
}


def reductions(op: str) -> list[Case]:
    formula, terms = REDUCTIONS[op]
    samples = ABOVE_ZERO if op == "ReduceLogSum" else FACTORS if op == "ReduceProd" else SIGNED
    cases = []
    for axis, chosen in [(-1, samples), (0, samples), (1, samples), (-1, MANY)]:
        if chosen is MANY and op in ("ReduceProd", "ReduceMax"):
            continue
        how = {"axis": axis, "keepdims": True}
        cases.append(
            Case(
                op,
                {kind: [*xs, np.array([axis])] for kind, xs in chosen.items()},
                lambda x, _, how=how: formula(x, **how),
                terms and (lambda x, _, how=how: terms(x, **how)),
                version=20,
                name="many" if chosen is MANY else f"axis {axis}",
            )
        )
    return cases


def softmax(x: Array, axis: int = -1) -> Array:
    y = np.exp(x - np.max(x, axis=axis, keepdims=True))
    return np.asarray(y / np.sum(y, axis=axis, keepdims=True))


def log_softmax(x: Array, axis: int = -1) -> Array:
    y = x - np.max(x, axis=axis, keepdims=True)
    return np.asarray(y - np.log(np.sum(np.exp(y), axis=axis, keepdims=True)))


def on_grid(x: Array, step: float = 2.0**-16) -> Array:
    """Return multiples of a step, whose differences float32 holds as they are."""
    return np.rint(x / step) * step


# A difference that is rounded moves its exponential by as many ulps as it is large.
SCORES: dict[str, Sample] = {
    "normal": [on_grid(normal(*SHAPE))],
    "small": [on_grid(normal(*SHAPE, scale=0.01))],
    "large": [on_grid(normal(*SHAPE, scale=10))],
    "many": [on_grid(normal(2, 4, 8192))],
}


def log_softmax_terms(x: Array, axis: int) -> Array:
    """Return how large the score and the logarithm are whose difference is the result."""
    return np.asarray(np.abs(x) + np.abs(log_sum_exp(x, axis=axis, keepdims=True)))


def softmaxes() -> list[Case]:
    cases = []
    for axis in (-1, 0, 1):
        how = {"axis": axis}
        name = f"axis {axis}"
        cases += [
            Case("Softmax", SCORES, lambda x, a=axis: softmax(x, a), None, how, name, version=13),
            Case(
                "LogSoftmax",
                SCORES,
                lambda x, a=axis: log_softmax(x, a),
                lambda x, a=axis: log_softmax_terms(x, a),
                how,
                name,
                version=13,
            ),
        ]
    return cases


LAYER = (32, 768)
GAIN, BIAS = normal(LAYER[1], scale=0.2, around=1), normal(LAYER[1], scale=0.2)
ROWS: dict[str, Sample] = {
    "normal": [normal(*LAYER), GAIN, BIAS],
    "off center": [normal(*LAYER, around=20), GAIN, BIAS],
    "small": [normal(*LAYER, scale=0.01), GAIN, BIAS],
}
IMAGE = (2, 16, 12, 14)
CHANNELS = IMAGE[1]
PER_CHANNEL = normal(CHANNELS, scale=0.2, around=1), normal(CHANNELS, scale=0.2)


def channel(values: Array) -> Array:
    return values.reshape(1, -1, 1, 1)


def standard(x: Array, axis: Any, epsilon: float = single(1e-5)) -> Array:
    deviation = np.sqrt(np.var(x, axis=axis, keepdims=True) + epsilon)
    return np.asarray((x - np.mean(x, axis=axis, keepdims=True)) / deviation)


def size(x: Array, axis: Any, epsilon: float = single(1e-5)) -> Array:
    """Return the sum of the absolute values of what ``standard`` adds up, the mean's terms too."""
    deviation = np.sqrt(np.var(x, axis=axis, keepdims=True) + epsilon)
    return np.asarray((np.abs(x) + np.mean(np.abs(x), axis=axis, keepdims=True)) / deviation)


def root_mean_square(x: Array, epsilon: float = single(1e-5)) -> Array:
    return np.asarray(x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + epsilon))


def in_groups(function: Callable[..., Array], x: Array, groups: int = 4) -> Array:
    return function(x.reshape(x.shape[0], groups, -1), -1).reshape(x.shape)


def batch(x: Array, s: Array, b: Array, m: Array, v: Array) -> Array:
    factor = channel(s) / np.sqrt(channel(v) + single(1e-5))
    return np.asarray((x - channel(m)) * factor + channel(b))


def batch_terms(x: Array, s: Array, b: Array, m: Array, v: Array) -> Array:
    return batch(np.abs(x), np.abs(s), np.abs(b), -np.abs(m), v)


def lrn(x: Array) -> Array:
    squares = np.pad(x * x, [(0, 0), (2, 2), (0, 0), (0, 0)])
    total = np.sum([squares[:, i : i + x.shape[1]] for i in range(5)], axis=0)
    return np.asarray(x / (1 + single(1e-4) / 5 * total) ** 0.75)


def images(*parameters: Array) -> dict[str, Sample]:
    return {
        "normal": [normal(*IMAGE), *parameters],
        "off center": [normal(*IMAGE, around=20), *parameters],
    }


STATISTICS = normal(CHANNELS), uniform(0.5, 2, CHANNELS)
OVER = (2, 3)

NORMS = [
    Case(
        "LayerNormalization",
        ROWS,
        lambda x, s, b: standard(x, -1) * s + b,
        lambda x, s, b: size(x, -1) * np.abs(s) + np.abs(b),
        version=17,
    ),
    Case(
        "RMSNormalization",
        {k: v[:2] for k, v in ROWS.items()},
        lambda x, s: root_mean_square(x) * s,
        version=23,
    ),
    Case(
        "SimplifiedLayerNormalization",
        {k: v[:2] for k, v in ROWS.items()},
        lambda x, s: root_mean_square(x) * s,
        attributes={"epsilon": 1e-5},
        version=17,
    ),
    Case(
        "SkipLayerNormalization",
        {"normal": [normal(4, *LAYER), uniform(-1, 1, 4, *LAYER), GAIN, BIAS]},
        lambda x, y, s, b: standard(x + y, -1, single(1e-12)) * s + b,
        lambda x, y, s, b: size(np.abs(x) + np.abs(y), -1, 0) * np.abs(s) + np.abs(b),
        {"epsilon": 1e-12},
        domain="com.microsoft",
        version=17,
        fed=2,
    ),
    Case(
        "SkipSimplifiedLayerNormalization",
        {"normal": [normal(4, *LAYER), uniform(-1, 1, 4, *LAYER), GAIN]},
        lambda x, y, s: root_mean_square(x + y) * s,
        lambda x, y, s: root_mean_square(np.abs(x) + np.abs(y)) * np.abs(s),
        {"epsilon": 1e-5},
        domain="com.microsoft",
        version=17,
        fed=2,
    ),
    Case(
        "InstanceNormalization",
        images(*PER_CHANNEL),
        lambda x, s, b: standard(x, OVER) * channel(s) + channel(b),
        lambda x, s, b: size(x, OVER) * channel(np.abs(s)) + channel(np.abs(b)),
    ),
    Case(
        "GroupNormalization",
        images(*PER_CHANNEL),
        lambda x, s, b: in_groups(standard, x) * channel(s) + channel(b),
        lambda x, s, b: in_groups(size, x) * channel(np.abs(s)) + channel(np.abs(b)),
        {"num_groups": 4},
        version=21,
    ),
    Case("BatchNormalization", images(*PER_CHANNEL, *STATISTICS), batch, batch_terms, version=15),
    Case(
        "MeanVarianceNormalization",
        images(),
        lambda x: standard(x, (0, 2, 3), 0),
        lambda x: size(x, (0, 2, 3), 0),
        version=13,
    ),
    Case(
        "LpNormalization",
        {"normal": [normal(*SHAPE)], "spread": [spread(1e-2, 10, *SHAPE)]},
        lambda x: x / np.sqrt(np.sum(x * x, axis=-1, keepdims=True)),
        name="p 2",
    ),
    Case(
        "LpNormalization",
        {"normal": [normal(*SHAPE)], "spread": [spread(1e-2, 10, *SHAPE)]},
        lambda x: x / np.sum(np.abs(x), axis=1, keepdims=True),
        attributes={"p": 1, "axis": 1},
        name="p 1, axis 1",
    ),
    Case("LRN", images(), lrn, attributes={"size": 5}, version=13),
]

RUNNING: Mapping[str, Sample] = {
    "normal": [normal(16, 512), np.array(1)],
    "positive": [uniform(0, 1, 16, 512), np.array(1)],
}

CASES = [
    *softmaxes(),
    *(case for op in REDUCTIONS for case in reductions(op)),
    *NORMS,
    Case(
        "CumSum",
        RUNNING,
        lambda x, _: np.cumsum(x, 1),
        lambda x, _: np.cumsum(np.abs(x), 1),
        version=14,
    ),
    Case(
        "CumProd",
        {"near 1": [np.exp(normal(16, 64, scale=0.05)), np.array(1)]},
        lambda x, _: np.cumprod(x, 1),
        version=26,
    ),
]
