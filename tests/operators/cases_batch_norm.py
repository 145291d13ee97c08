"""BatchNormalization of every version, in training and in inference."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from case import Case
from formula import CONSUMED, RNG

BF16 = ml_dtypes.bfloat16
X = RNG.standard_normal((4, 3, 5, 2)).astype(np.float32)
FLAT = RNG.standard_normal((6, 3)).astype(np.float32)
LINE = RNG.standard_normal(7).astype(np.float32)


def parameters(*shape: int) -> list[Any]:
    scale, bias, mean = (RNG.standard_normal(shape).astype(np.float32) for _ in range(3))
    return [scale, bias, mean, RNG.uniform(0.5, 2, shape).astype(np.float32)]


CHANNEL, ITEM, ONE = parameters(3), parameters(3, 5, 2), parameters(1)


def spread(value: Any, x: Any) -> Any:
    """A parameter per channel, or of an item's shape, in float64 beside x."""
    value = np.float64(value)
    return value if value.ndim > 1 or x.ndim < 2 else value.reshape(-1, *[1] * (x.ndim - 2))


def inference(x: Any, *given: Any, epsilon: float = 1e-5) -> Any:
    scale, bias, mean, var = (spread(value, x) for value in given)
    y = (np.float64(x) - mean) / np.sqrt(var + epsilon) * scale + bias
    return y.astype(x.dtype)


def training(spatial: bool = True, momentum: float = 0.9, outputs: int = 5) -> Any:
    def answer(x: Any, scale: Any, bias: Any, mean: Any, var: Any) -> Any:
        axes = (0, *range(2, x.ndim)) if spatial else (0,)
        own = np.mean(np.float64(x), axis=axes), np.var(np.float64(x), axis=axes)
        y = inference(x, scale, bias, *own)
        pairs = zip((mean, var), own, strict=True)
        running = (old * momentum + new * (1 - momentum) for old, new in pairs)
        return y, *[a.astype(np.float32) for a in (*running, *own)][: outputs - 1]

    return answer


def case(version: int, name: str, expected: Any, inputs: list[Any], **attributes: Any) -> Case:
    return Case("BatchNormalization", version, inputs, expected, attributes, name=name)


MIXED = [X.astype(np.float16), *CHANNEL]
HALF = [X.astype(BF16), *(p.astype(BF16) for p in CHANNEL)]

CASES = [
    case(1, "test", inference, [X, *CHANNEL], is_test=1, **CONSUMED),
    case(1, "train", training(), [X, *CHANNEL], **CONSUMED),
    case(6, "train", training(momentum=0.5), [X, *CHANNEL], momentum=0.5),
    case(6, "positions", inference, [X, *ITEM], is_test=1, spatial=0),
    case(6, "train-positions", training(spatial=False), [X, *ITEM], spatial=0),
    case(7, "inference", inference, [X, *CHANNEL]),
    case(7, "train", training(), [X, *CHANNEL]),
    case(7, "positions", inference, [X, *ITEM], spatial=0),
    case(7, "train-positions", training(spatial=False), [X, *ITEM], spatial=0),
    case(9, "inference", inference, [X, *CHANNEL]),
    case(9, "matrix", inference, [FLAT, *CHANNEL]),
    case(9, "one-channel", inference, [LINE, *ONE]),
    case(9, "train", training(), [X, *CHANNEL]),
    case(14, "inference", inference, [X, *CHANNEL]),
    case(14, "train", training(outputs=3), [X, *CHANNEL], training_mode=1),
    case(15, "empty", inference, [X[:0], *CHANNEL]),
    Case("BatchNormalization", 15, MIXED, inference, name="mixed", rtol=2e-3, atol=1e-3),
    Case("BatchNormalization", 15, HALF, inference, name="bfloat16", rtol=2**-7, atol=2**-7),
]
