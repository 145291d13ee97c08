"""Activation functions.

Where a function has branches it is written with ``maximum`` and ``minimum`` rather than
``where``: numpy's takes ten times as long on data whose sign is not predictable.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from tenonnx.operators import Array, Namespace, OperatorTable
from tenonnx_array.accurate import logistic
from tenonnx_array.legacy import consuming
from tenonnx_array.precision import widened
from tenonnx_array.special import erf

table = OperatorTable()
op = table.op


def relu(xp: Namespace, x: Array) -> Array:
    """Return max(x, 0)."""
    return xp.maximum(x, 0)


@widened
def sigmoid(xp: Namespace, x: Array) -> Array:
    """Return 1 / (1 + exp(-x))."""
    return logistic(xp, x)


@widened
def elu(xp: Namespace, x: Array, *, alpha: float = 1.0) -> Array:
    """Return alpha (exp(x) - 1) below zero, x above."""
    y = xp.expm1(xp.minimum(x, 0))
    y *= alpha
    y += xp.maximum(x, 0)
    return y


@widened
def hard_sigmoid(xp: Namespace, x: Array, *, alpha: float = 0.2, beta: float = 0.5) -> Array:
    """Return alpha x + beta, limited to [0, 1]."""
    y = alpha * x
    y += beta
    return xp.clip(y, 0, 1)


@widened
def leaky_relu(xp: Namespace, x: Array, *, alpha: float = 0.01) -> Array:
    """Return alpha x below zero, x above."""
    if 0 < alpha <= 1:
        return xp.maximum(x, alpha * x)
    return xp.where(x < 0, alpha * x, x)


@widened
def scaled_elu(xp: Namespace, x: Array, *, alpha: float, gamma: float) -> Array:
    """Return gamma alpha (exp(x) - 1) below zero, gamma x above."""
    y = elu(xp, x, alpha=alpha)
    y *= gamma
    return y


def selu_1(xp: Namespace, x: Array, *, alpha: float = 1.6732, gamma: float = 1.0507) -> Array:
    """Scaled ELU with the rounded constants of opset 1."""
    return scaled_elu(xp, x, alpha=alpha, gamma=gamma)


def selu(
    xp: Namespace,
    x: Array,
    *,
    alpha: float = 1.67326319217681884765625,
    gamma: float = 1.05070102214813232421875,
) -> Array:
    """Scaled ELU (arXiv:1706.02515)."""
    return scaled_elu(xp, x, alpha=alpha, gamma=gamma)


NAMED: dict[str, Callable[..., Array]] = {
    "Elu": elu,
    "HardSigmoid": hard_sigmoid,
    "LeakyRelu": leaky_relu,
    "Relu": relu,
    "Sigmoid": sigmoid,
}
table.rows({name: consuming(f) for name, f in (NAMED | {"Selu": selu_1}).items()}, since=1)
table.rows(NAMED | {"Selu": selu}, since=6)


@op("PRelu", since=7)
@widened
def prelu(xp: Namespace, x: Array, slope: Array) -> Array:
    """Return slope x below zero, x above; the slope broadcasts to x."""
    return xp.where(x < 0, slope * x, x)


def prelu_1(xp: Namespace, x: Array, slope: Array) -> Array:
    """Return PRelu with one slope, or one for each channel (axis 1)."""
    if slope.size != 1 and slope.ndim == 1 and x.ndim > 1:
        slope = slope.reshape(slope.shape + (1,) * (x.ndim - 2))
    return prelu(xp, x, slope)


table.rows({"PRelu": consuming(prelu_1)}, since=1)
table.rows({"PRelu": prelu_1}, since=6)


@op("Celu", since=12)
@widened
def celu(xp: Namespace, x: Array, *, alpha: float = 1.0) -> Array:
    """Return max(0, x) + min(0, alpha (exp(x / alpha) - 1)) (arXiv:1704.07483)."""
    return xp.maximum(x, 0) + xp.minimum(alpha * xp.expm1(x / alpha), 0)


@op("Gelu", since=20)
@widened
def gelu(xp: Namespace, x: Array, *, approximate: str = "none") -> Array:
    """Return x times the normal distribution at x (arXiv:1606.08415), exact or through tanh."""
    if approximate not in ("none", "tanh"):
        raise ValueError(f"expected approximate to be 'none' or 'tanh', found {approximate!r}")
    y = erf(xp, x * math.sqrt(0.5)) if approximate == "none" else _tanh_normal(xp, x)
    y += 1
    y *= x
    y *= 0.5
    return y


def _tanh_normal(xp: Namespace, x: Array) -> Array:
    y = x * x
    y *= 0.044715
    y += 1
    y *= x
    y *= math.sqrt(2 / math.pi)
    return xp.tanh(y)


@op("HardSwish", since=14)
@widened
def hard_swish(xp: Namespace, x: Array) -> Array:
    """Return x times the hard sigmoid of slope 1/6."""
    return x * hard_sigmoid(xp, x, alpha=1 / 6)


@op("Mish", since=18)
@widened
def mish(xp: Namespace, x: Array) -> Array:
    """Return x tanh(softplus(x)) (arXiv:1908.08681)."""
    return x * xp.tanh(softplus(xp, x))


@op("Shrink", since=9)
@widened
def shrink(xp: Namespace, x: Array, *, bias: float = 0.0, lambd: float = 0.5) -> Array:
    """Return x + bias below -lambd, x - bias above lambd, 0 between; integers truncate."""
    if not bias and x.dtype.kind in "iu" and math.isfinite(lambd):
        # Compared as integers: as floats, of 8 bytes, they take many times as long.
        return x * ((x > math.floor(lambd)) | (x < math.ceil(-lambd)))
    if not bias:
        return xp.where((x < -lambd) | (x > lambd), x, x.dtype.type(0))
    y = xp.where(x < -lambd, x + bias, xp.where(x > lambd, x - bias, 0))
    return y.astype(x.dtype)


@op("Softplus")
@widened
def softplus(xp: Namespace, x: Array) -> Array:
    """Return log(exp(x) + 1), in the form that cannot overflow."""
    return xp.maximum(x, 0) + xp.log1p(xp.exp(-xp.abs(x)))


@op("Softsign")
@widened
def softsign(xp: Namespace, x: Array) -> Array:
    """Return x / (1 + |x|)."""
    return x / (1 + xp.abs(x))


@op("Swish", since=24)
@widened
def swish(xp: Namespace, x: Array, *, alpha: float = 1.0) -> Array:
    """Return x sigmoid(alpha x)."""
    return logistic(xp, x, alpha, times=True)


@op("SwiGLU", since=28)
@widened
def swiglu(xp: Namespace, a: Array, b: Array, *, alpha: float = 1.0) -> Array:
    """Return swish(a) b, of equal shapes."""
    if a.shape != b.shape:
        raise ValueError(f"expected a gate and a value of one shape, found {a.shape} and {b.shape}")
    return swish(xp, a, alpha=alpha) * b


@op("ThresholdedRelu", since=10)
@widened
def thresholded_relu(xp: Namespace, x: Array, *, alpha: float = 1.0) -> Array:
    """Return x above alpha, else 0."""
    return xp.where(x > alpha, x, 0)


def tanh(xp: Namespace, x: Array) -> Array:
    """Return the hyperbolic tangent."""
    return xp.tanh(x)


# Functions of activations; ``tenonnx.graph.traits.ACTIVATIONS`` has their parameters.
ACTIVATIONS: dict[str, Callable[..., Array]] = NAMED | {
    "Celu": celu,
    "Gelu": gelu,
    "HardSwish": hard_swish,
    "Mish": mish,
    "Selu": selu,
    "Softplus": softplus,
    "Softsign": softsign,
    "Swish": swish,
    "Tanh": tanh,
    "ThresholdedRelu": thresholded_relu,
}
