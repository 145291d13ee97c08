"""The error function, which array namespaces lack.

All polynomials are minimax fits (Chebyshev bases, Lawson's iteration, 60 digits).
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import numpy as np

from tenonnx.by_name import cacheable
from tenonnx_array.dtypes import FLOATS
from tenonnx_array.precision import widened

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tenonnx.operators import Array, Namespace

# Elements that numpy does at a time: with temporaries, what a core's second cache holds.
PIECE_ELEMENTS = 1 << 15

# The sign's bit.
SIGN = np.int32(-(2**31))

# erf(x) / x - 1 in z = x²; relative error of erf 1.2e-9 for |x| <= 1.
ERF_OVER_X = (
    0.1283791657, -0.3761262582, 0.1128358512, -0.02685381099, 0.005188326279, -0.0008010183894,
    7.853836115e-05,
)  # fmt: skip

# log(erfc(x)); relative error of erf 1.1e-9 for 1 <= x <= 3.95, beyond which erf is 1 in float32.
LOG_ERFC = (
    -0.0003414231739, -1.127089578, -0.6381442151, -0.1031072687, 0.02183830003, -0.002947714942,
    0.0001863847412,
)  # fmt: skip

# erf(x) / x in z = x²; relative error 7.3e-18 for |x| <= 1.
ERF_NEAR_ZERO = (
    1.1283791670955126, -0.3761263890318352, 0.11283791670944213, -0.026866170643114307,
    0.005223977606133792, -0.0008548325929799572, 0.00012055293586129136, -1.4924712403320478e-05,
    1.6447132089678994e-06, -1.6206313216548407e-07, 1.3710961942079004e-08, -7.779408701046747e-10,
)  # fmt: skip

# exp(x²) erfc(x) in t = 1 / (1 + x/2); error times exp(-x²) 5.4e-19 for 1 <= x <= 6.
SCALED_ERFC = (
    -3.1334454171152327e-06, 0.28218877076066534, 0.28081563031442563, 0.2573160678875016,
    0.11857448974546834, 0.3090485429559182, -0.6425794581077877, 1.2597571311928122,
    -1.9956134763888453, 1.9431154293190078, -1.1260986727518736, 0.3652730882612126,
    -0.051795008269701896,
)  # fmt: skip


@widened
def erf(xp: Namespace, x: Array) -> Array:
    """Return the error function of an array of floats, in its dtype.

    At most 1.2 ulp off in float32 and 1 ulp in float64.
    """
    if x.dtype == np.float64:
        return _erf64(xp, x)
    return _erf_in_pieces(x) if xp is np else _erf32(xp, x)


@cacheable
def erf_any(xp: Namespace, x: Array) -> Array:
    """Return the error function of numbers of any kind; integers truncate, as Erf-9 has them."""
    if x.dtype in FLOATS:
        return erf(xp, x)
    return erf(xp, x.astype(np.float64)).astype(x.dtype)


def _erf32(xp: Namespace, x: Array) -> Array:
    x = xp.clip(x, -3.95, 3.95)
    a = xp.abs(x)
    near = polynomial(ERF_OVER_X, a * a)
    near *= x
    near += x
    far = 1 - xp.exp(polynomial(LOG_ERFC, a))
    return xp.where(a < 1, near, xp.copysign(far, x))


def _erf_in_pieces(x: Array) -> Array:
    """Return what ``_erf32`` does, by numpy: in memory that stays in the cache.

    It chooses by bits: ``where`` and ``copysign`` take longer than all of a polynomial.
    """
    out, flat = np.empty(x.shape, x.dtype), np.ascontiguousarray(x).reshape(-1)
    into, size = out.reshape(-1), min(PIECE_ELEMENTS, x.size)
    floats, chosen = np.empty((3, size), x.dtype), np.empty(size, np.int32)
    for start in range(0, x.size, PIECE_ELEMENTS):
        some = slice(start, start + PIECE_ELEMENTS)
        near, data = into[some], flat[some]
        clipped, a, far = floats[:, : len(data)]
        np.minimum(np.maximum(data, -3.95, out=clipped), 3.95, out=clipped)
        np.abs(clipped, out=a)
        np.exp(polynomial(LOG_ERFC, a, far), out=far)
        np.subtract(1, far, out=far)
        mask = np.less(a, 1, out=chosen[: len(data)], casting="unsafe")
        np.negative(mask, out=mask)
        np.multiply(a, a, out=a)
        polynomial(ERF_OVER_X, a, near)
        near *= clipped
        near += clipped
        bits, result = far.view(np.int32), near.view(np.int32)
        bits |= clipped.view(np.int32) & SIGN
        result ^= bits
        result &= mask
        result ^= bits
    return out


def _erf64(xp: Namespace, x: Array) -> Array:
    a = xp.minimum(xp.abs(x), 6.0)
    near = x * polynomial(ERF_NEAR_ZERO, xp.minimum(a * a, 1.0))
    far = 1.0 - xp.exp(-a * a) * polynomial(SCALED_ERFC, 1.0 / (1.0 + a / 2))
    return xp.where(a < 1.0, near, xp.copysign(far, x))


def polynomial(coefficients: Sequence[float], x: Array, out: Array | None = None) -> Array:
    """Evaluate a polynomial, constant term first, by Horner's rule in one buffer: numpy's out."""
    *rest, first = coefficients

    def step(y: Array, c: float) -> Array:
        y *= x
        y += c
        return y

    y = x * first if out is None else np.multiply(x, first, out=out)
    y += rest[-1]
    return functools.reduce(step, reversed(rest[:-1]), y)
