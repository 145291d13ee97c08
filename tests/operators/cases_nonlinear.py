"""Activations at versions, and with values, that the backend suite leaves out."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
from case import Case
from formula import CONSUMED, POSITIVE, SPECIAL, X, in64


def hard_sigmoid(x: np.ndarray) -> np.ndarray:
    return np.clip(0.2 * x + 0.5, 0, 1)


def elu(x: np.ndarray, alpha: float = 1.0) -> np.ndarray:
    return np.where(x < 0, alpha * np.expm1(x), x)


def leaky(x: np.ndarray, alpha: float = 0.01) -> np.ndarray:
    return np.where(x < 0, alpha * x, x)


def celu(x: np.ndarray) -> np.ndarray:
    return np.maximum(x, 0) + np.minimum(0, 0.75 * np.expm1(x / 0.75))


def gelu(x: np.ndarray) -> np.ndarray:
    return x * np.vectorize(lambda v: 0.5 * math.erfc(-v / math.sqrt(2)))(x)


CHANNELS = np.array([0.1, -2.0, 3.0], np.float32)
BF16 = X.astype(ml_dtypes.bfloat16)
I8 = np.array([-128, -2, 0, 1, 127], np.int8)

CASES = [
    Case("Elu", 1, [X], in64(lambda x: elu(x, 2.0)), {"alpha": 2.0} | CONSUMED),
    Case("HardSigmoid", 1, [4 * X], in64(hard_sigmoid), CONSUMED),
    Case("HardSigmoid", 6, [4 * X], in64(hard_sigmoid)),
    Case("LeakyRelu", 1, [X], in64(leaky), CONSUMED),
    Case("LeakyRelu", 16, [X], in64(lambda x: leaky(x, 2.0)), {"alpha": 2.0}, name="steep"),
    Case("LeakyRelu", 16, [X], in64(lambda x: leaky(x, -1.0)), {"alpha": -1.0}, name="falling"),
    Case("Relu", 1, [X], np.maximum(X, 0), CONSUMED),
    Case("Relu", 13, [BF16], np.maximum(BF16, ml_dtypes.bfloat16(0))),
    Case("Relu", 14, [I8], np.array([0, 0, 0, 1, 127], np.int8), name="int8"),
    Case("Selu", 1, [X], in64(lambda x: 1.0507 * elu(x, 1.6732)), CONSUMED),
    Case("Selu", 6, [X], in64(lambda x: 3 * elu(x, 2)), {"alpha": 2.0, "gamma": 3.0}, name="own"),
    Case("Sigmoid", 1, [X], in64(lambda x: 1 / (1 + np.exp(-x))), CONSUMED),
    Case("Sigmoid", 13, [SPECIAL * 400], in64(lambda x: 1 / (1 + np.exp(-x))), name="extremes"),
    Case("Softsign", 1, [X], in64(lambda x: x / (1 + np.abs(x)))),
    Case("ThresholdedRelu", 10, [X], np.where(X > 1, X, np.float32(0))),
    Case("HardSwish", 14, [4 * X], in64(lambda x: x * np.clip(x / 6 + 0.5, 0, 1))),
    Case("Mish", 18, [X], in64(lambda x: x * np.tanh(np.log1p(np.exp(x))))),
    Case("Softplus", 1, [SPECIAL * 400], in64(lambda x: np.logaddexp(x, 0)), name="extremes"),
    Case("Celu", 12, [X], in64(celu), {"alpha": 0.75}),
    Case("Celu", 28, [X.astype(np.float64)], in64(celu), {"alpha": 0.75}, rtol=1e-14, atol=0.0),
    Case("Gelu", 20, [X.astype(np.float64)], in64(gelu), name="double", rtol=1e-12, atol=1e-16),
    Case("Gelu", 20, [4 * X], in64(gelu), name="tails", atol=1e-6),
    Case("PRelu", 1, [X, np.float32([0.3])], in64(lambda x, a: leaky(x, a)), CONSUMED),
    Case("PRelu", 6, [X, CHANNELS], in64(lambda x, a: leaky(x, a[:, None, None])), name="channels"),
    Case("PRelu", 7, [X, POSITIVE[0]], in64(leaky)),
    Case("PRelu", 9, [np.int32([-3, 0, 3]), np.int32([2])], np.int32([-6, 0, 3])),
    Case("PRelu", 16, [np.float32([-3, 3]), np.float32([np.inf])], np.float32([-np.inf, 3])),
    Case("PRelu", 16, [np.uint32([3, 2**32 - 1]), np.uint32([2])], np.uint32([3, 2**32 - 1])),
    Case("Shrink", 9, [I8], np.array([-126, 0, 0, 0, 125], np.int8), {"bias": 2.0, "lambd": 1.5}),
    Case("Shrink", 9, [np.uint8([0, 1, 9])], np.uint8([0, 0, 7]), {"bias": 1.5}, name="truncates"),
]
