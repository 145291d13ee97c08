"""Cases of operators that treat every element alike."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from bench.precision.case import Array, Case, Sample, normal, spread, uniform

SHAPE = (16, 256)
Unary = Callable[[Array], Array]

NORMAL = normal(*SHAPE, scale=2)
SMALL = spread(1e-4, 1e-1, *SHAPE)
WIDE = spread(1e-3, 1e3, *SHAPE)
POSITIVE = spread(1e-3, 1e3, *SHAPE, signed=False)
LINE: dict[str, Sample] = {"normal": [NORMAL], "small": [SMALL], "wide": [WIDE]}
ABOVE_ZERO: dict[str, Sample] = {
    "positive": [POSITIVE],
    "near 1": [uniform(0.9, 1.1, *SHAPE)],
    "small": [np.abs(SMALL)],
}
EXPONENTS: dict[str, Sample] = {
    "normal": [NORMAL],
    "small": [SMALL],
    "wide": [uniform(-87, 88, *SHAPE)],
}
UNIT: dict[str, Sample] = {"in (-1, 1)": [uniform(-1, 1, *SHAPE)], "small": [SMALL]}
ANGLES: dict[str, Sample] = {
    "normal": [NORMAL],
    "small": [SMALL],
    "angles": [uniform(-100, 100, *SHAPE)],
}

erf: Unary = np.vectorize(math.erf, otypes=[np.float64])
erfc: Unary = np.vectorize(math.erfc, otypes=[np.float64])


def sigmoid(x: Array) -> Array:
    return np.asarray(np.exp(np.minimum(x, 0)) / (1 + np.exp(-np.abs(x))))


def softplus(x: Array) -> Array:
    return np.asarray(np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))))


def elu(x: Array, alpha: float = 1.0) -> Array:
    return np.asarray(np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0))))


def gelu(x: Array) -> Array:
    return np.asarray(x * erfc(-x * math.sqrt(0.5)) / 2)


def tanh_gelu(x: Array) -> Array:
    return np.asarray(x * sigmoid(2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def single(value: float) -> float:
    """Return an attribute as the model holds it."""
    return float(np.float32(value))


SELU = single(1.67326319217681884765625), single(1.05070102214813232421875)

# By operator without attributes: the formula and the inputs.
FUNCTIONS: dict[str, tuple[Unary, dict[str, Sample]]] = {
    "Exp": (np.exp, EXPONENTS),
    "Log": (np.log, ABOVE_ZERO),
    "Sqrt": (np.sqrt, ABOVE_ZERO),
    "Reciprocal": (np.reciprocal, LINE),
    "Tanh": (np.tanh, LINE),
    "Sigmoid": (sigmoid, EXPONENTS),
    "Erf": (erf, LINE),
    "Sin": (np.sin, ANGLES),
    "Cos": (np.cos, ANGLES),
    "Tan": (np.tan, ANGLES),
    "Asin": (np.arcsin, UNIT),
    "Acos": (np.arccos, UNIT),
    "Atan": (np.arctan, LINE),
    "Sinh": (np.sinh, EXPONENTS),
    "Cosh": (np.cosh, EXPONENTS),
    "Asinh": (np.arcsinh, LINE),
    "Acosh": (np.arccosh, {"above 1": [1 + POSITIVE]}),
    "Atanh": (np.arctanh, UNIT),
    "Softplus": (softplus, EXPONENTS),
    "Softsign": (lambda x: x / (1 + np.abs(x)), LINE),
    "Elu": (elu, EXPONENTS),
    "Selu": (lambda x: SELU[1] * elu(x, SELU[0]), EXPONENTS),
    "Mish": (lambda x: x * np.tanh(softplus(x)), EXPONENTS),
    "Relu": (lambda x: np.maximum(x, 0), LINE),
}

# Below -5 the Gelu's value is the difference from 1 of a number that float32 has as 1.
BELL: dict[str, Sample] = {"normal": [NORMAL], "small": [SMALL]}

WITH_ATTRIBUTES = [
    Case("Elu", EXPONENTS, lambda x: elu(x, 0.5), attributes={"alpha": 0.5}, name="alpha 0.5"),
    Case(
        "Celu",
        EXPONENTS,
        lambda x: np.where(x > 0, x, 2 * np.expm1(np.minimum(x, 0) / 2)),
        attributes={"alpha": 2.0},
    ),
    Case("LeakyRelu", LINE, lambda x: np.where(x < 0, single(0.01) * x, x)),
    Case(
        "HardSigmoid",
        LINE,
        lambda x: np.clip(single(0.2) * x + 0.5, 0, 1),
        lambda x: np.abs(x) * 0.2 + 0.5,
    ),
    Case(
        "HardSwish",
        LINE,
        lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
        lambda x: np.abs(x) * (np.abs(x) / 6 + 0.5),
        version=14,
    ),
    Case(
        "Shrink",
        LINE,
        lambda x: np.sign(x) * np.maximum(np.abs(x) - 0.5, 0),
        lambda x: np.abs(x) + 0.5,
        {"bias": 0.5, "lambd": 0.5},
        version=9,
    ),
    Case("ThresholdedRelu", LINE, lambda x: np.where(x > 1, x, 0)),
    Case("Gelu", BELL, gelu, lambda x: np.abs(x), version=20, name="exact"),
    Case(
        "Gelu",
        BELL,
        tanh_gelu,
        lambda x: np.abs(x),
        {"approximate": "tanh"},
        version=20,
        name="tanh",
    ),
    Case("Swish", EXPONENTS, lambda x: x * sigmoid(x), version=24),
]

LEFT, RIGHT = normal(*SHAPE, scale=3), spread(0.1, 10, *SHAPE)
PAIR: dict[str, Sample] = {"normal": [LEFT, RIGHT], "wide": [WIDE, RIGHT]}
POWERS: dict[str, Sample] = {
    "by 2": [NORMAL, np.array(2.0)],
    "by 3": [NORMAL, np.array(3.0)],
    "by 0.5": [POSITIVE, np.array(0.5)],
    "by -1.5": [POSITIVE, np.array(-1.5)],
    "by others": [np.abs(RIGHT), LEFT],
}
BINARY = [
    Case("Add", PAIR, np.add, fed=2),
    Case("Sub", PAIR, np.subtract, fed=2),
    Case("Mul", PAIR, np.multiply, fed=2),
    Case("Div", PAIR, np.divide, fed=2),
    Case("PRelu", PAIR, lambda x, s: np.where(x < 0, x * s, x)),
    *(Case("Pow", {kind: xs}, np.power, version=13, name=kind) for kind, xs in POWERS.items()),
    Case(
        "Mod",
        {"normal": [LEFT, RIGHT]},
        np.fmod,
        attributes={"fmod": 1},
        name="fmod",
        version=13,
        fed=2,
    ),
    Case(
        "Sum",
        {"normal": [LEFT, RIGHT, NORMAL]},
        lambda *x: sum(x),
        lambda *x: sum(map(np.abs, x)),
        version=13,
        fed=3,
    ),
    Case(
        "Mean",
        {"normal": [LEFT, RIGHT, NORMAL]},
        lambda *x: sum(x) / 3,
        lambda *x: sum(map(np.abs, x)) / 3,
        version=13,
        fed=3,
    ),
    Case("SwiGLU", {"normal": [NORMAL, RIGHT]}, lambda a, b: a * sigmoid(a) * b, version=28, fed=2),
]

MICROSOFT = [
    Case("Gelu", BELL, gelu, lambda x: np.abs(x), domain="com.microsoft", name="com.microsoft"),
    Case("FastGelu", BELL, tanh_gelu, lambda x: np.abs(x), domain="com.microsoft"),
    Case("QuickGelu", BELL, lambda x: x * sigmoid(single(1.702) * x), domain="com.microsoft"),
    Case(
        "BiasGelu",
        {"normal": [NORMAL, normal(SHAPE[1])]},
        lambda x, b: gelu(x + b),
        lambda x, b: np.abs(x) + np.abs(b),
        domain="com.microsoft",
    ),
    Case(
        "FastGelu",
        {"normal": [NORMAL, normal(SHAPE[1])]},
        lambda x, b: tanh_gelu(x + b),
        lambda x, b: np.abs(x) + np.abs(b),
        domain="com.microsoft",
        name="bias",
    ),
]

CASES = [
    *(Case(name, samples, function) for name, (function, samples) in FUNCTIONS.items()),
    *WITH_ATTRIBUTES,
    *BINARY,
    *MICROSOFT,
]
