"""Logarithms, circular and hyperbolic functions of float32, and their inverses, as ``vmath`` has.

Only programs apply them: they are apart, so that no other kernel is compiled anew with them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx_cpu.jit.vectors.vmath import (
    LN2_HIGH,
    LN2_LOW,
    LOG2E,
    SHIFT,
    SHIFT_BITS,
    _exp_beyond_1,
    _power_of_two,
    bits_of,
    exact,
    exp,
    float_of,
)

F, INT = np.float32, np.int32

INFINITY, NAN = F(np.inf), F(np.nan)
SIGN_BIT, THREE_QUARTERS_BITS = INT(-(2**31)), INT(0x3F400000)
LEAST_NORMAL = F(2.0**-126)
LN2, HALF_PI, HALF_PI_LOW = F(0.6931471805599453), F(1.5707963267948966), F(-4.371139e-8)


@exact
def _with_sign(y: Any, bits: Any) -> Any:
    """Return y, whose sign is changed if that of an int32 is set."""
    return float_of(INT(bits_of(y) ^ INT(bits & SIGN_BIT)))


# log(1 + m) in m for -0.25 <= m <= 0.5, from the cube on.
L3, L4, L5, L6, L7, L8, L9, L10 = map(
    F,
    (
        0.3333345056, -0.2500010431, 0.1999082118, -0.166469872, 0.1447825283, -0.1316399723,
        0.104697369, -0.04512118548,
    ),
)  # fmt: skip


@exact
def _exponent(x: Any) -> Any:
    """Return the k for which a normal x is between 0.75 and 1.5 times 2**k."""
    return INT(INT(bits_of(x) - THREE_QUARTERS_BITS) >> INT(23))


@exact
def _log(k: Any, m: Any) -> Any:
    """log(2**k (1 + m))."""
    p = ((((((L10 * m + L9) * m + L8) * m + L7) * m + L6) * m + L5) * m + L4) * m + L3
    n = F(k)
    return n * LN2_HIGH + (m + (m * m * (m * p - F(0.5)) + n * LN2_LOW))


@exact
def log(x: Any) -> Any:
    """The natural logarithm within 1 ulp, of denormal numbers as well."""
    small = x < LEAST_NORMAL
    a = x * F(2.0**25) if small else x
    k = _exponent(a)
    y = _log(INT(k - INT(25)) if small else k, float_of(INT(bits_of(a) - INT(k << INT(23)))) - F(1))
    y = y if x < INFINITY else x
    y = y if x > F(0) else -INFINITY
    return NAN if (x < F(0)) | (x != x) else y


@exact
def log1p(x: Any) -> Any:
    """log(1 + x) within 2 ulp where x is not negative."""
    k = _exponent(x + F(1))
    one = float_of(INT(max(INT(INT(127) - k), INT(0)) << INT(23)))
    y = _log(k, float_of(INT(bits_of(x) - INT(k << INT(23)))) + (one - F(1)))
    return y if x < INFINITY else x


@exact
def softplus(x: Any) -> Any:
    """log(1 + e**x) within 3 ulp."""
    return (F(0) if x < F(0) else x) + log1p(exp(-abs(x)))


@exact
def mish(x: Any) -> Any:
    """The product x * tanh(softplus(x)) within 4 ulp above -87, where e**x is a normal number."""
    e = exp(F(40) if x > F(40) else x)
    w = e * (e + F(2))
    return x * (w / (w + F(2)))


@exact
def expm1_of_negative(x: Any) -> Any:
    """e**x - 1 within 2 ulp where x is not positive."""
    x = F(-30) if x < F(-30) else x
    shifted = x * LOG2E + SHIFT
    power = _power_of_two(INT(bits_of(shifted) - SHIFT_BITS))
    return _exp_beyond_1(x, shifted - SHIFT) * power + (power - F(1))


@exact
def elu(x: Any, below: Any, above: Any) -> Any:
    """``below (e**x - 1)`` below zero, ``above x`` above."""
    return below * expm1_of_negative(x) if x < F(0) else above * x


@exact
def celu(x: Any, alpha: Any) -> Any:
    """``alpha (e**(x / alpha) - 1)`` below zero, x above."""
    return alpha * expm1_of_negative(x / alpha) if x < F(0) else x


@exact
def shrink(x: Any, limit: Any, bias: Any) -> Any:
    """0 up to a limit, beyond it closer to 0 by a bias."""
    y = x - bias if x > limit else F(0)
    return x + bias if x < -limit else y


# atan(t) in t from the cube on for t <= 1, asin(t) for t <= 0.5.
A3, A5, A7, A9, A11, A13, A15, A17 = map(
    F,
    (
        -0.3333315253, 0.1999376863, -0.1421102434, 0.1066589281, -0.0755199343, 0.04320942611,
        -0.0163665209, 0.002920359839,
    ),
)  # fmt: skip
B3, B5, B7, B9, B11 = map(
    F, (0.166667521, 0.07495310158, 0.04546902329, 0.02418546565, 0.0421571061)
)


@exact
def atan(x: Any) -> Any:
    """The arc tangent within 2 ulp."""
    a = abs(x)
    t = F(1) / a if a > F(1) else a
    z = t * t
    p = ((((((A17 * z + A15) * z + A13) * z + A11) * z + A9) * z + A7) * z + A5) * z + A3
    y = t * z * p + t
    return _with_sign(HALF_PI - (y - HALF_PI_LOW) if a > F(1) else y, bits_of(x))


@exact
def _asin(a: Any, far: Any) -> Any:
    """The arc sine of ``a``; if that is above 0.5, half the arc sine's complement."""
    z = F(0.5) * (F(1) - a) if far else a * a
    t = np.sqrt(z) if far else a
    return t * z * ((((B11 * z + B9) * z + B7) * z + B5) * z + B3) + t


@exact
def asin(x: Any) -> Any:
    """The arc sine within 3 ulp; NaN beyond 1."""
    a = abs(x)
    far = a > F(0.5)
    y = _asin(a, far)
    return _with_sign(HALF_PI - (F(2) * y - HALF_PI_LOW) if far else y, bits_of(x))


@exact
def acos(x: Any) -> Any:
    """The arc cosine within 2 ulp; NaN beyond 1."""
    a = abs(x)
    far = a > F(0.5)
    y = _with_sign(_asin(a, far), bits_of(x))
    near = HALF_PI - (y - HALF_PI_LOW)
    twice = F(2) * y
    beyond = twice if x > F(0) else F(2) * HALF_PI + (twice + F(2) * HALF_PI_LOW)
    return beyond if far else near


@exact
def asinh(x: Any) -> Any:
    """The inverse hyperbolic sine within 3 ulp."""
    a = abs(x)
    large = a > F(2.0**30)
    square = F(0) if large else a * a
    y = log1p(a + square / (F(1) + np.sqrt(F(1) + square)))
    return _with_sign(y + LN2 if large else y, bits_of(x))


@exact
def acosh(x: Any) -> Any:
    """The inverse hyperbolic cosine within 3 ulp; NaN below 1."""
    large = x > F(2.0**30)
    beyond = x - F(1)
    y = log1p(beyond + (F(0) if large else np.sqrt(beyond * (beyond + F(2)))))
    return (y + LN2 if large else y) if x >= F(1) else NAN


@exact
def atanh(x: Any) -> Any:
    """The inverse hyperbolic tangent within 3 ulp; NaN beyond 1."""
    a = abs(x)
    y = F(0.5) * log1p(F(2) * a / (F(1) - a))
    return _with_sign(y if a <= F(1) else NAN, bits_of(x))


# sinh(x) in x from the cube on for x <= 1.
S3, S5, S7 = map(F, (0.1666671634, 0.008330274373, 0.0002037283266))


@exact
def _half_exp(a: Any) -> Any:
    """Half of e**a where a is not negative: finite where a hyperbolic function is."""
    a = F(90) if a > F(90) else a
    shifted = a * LOG2E + SHIFT
    power = _power_of_two(INT(bits_of(shifted) - SHIFT_BITS - INT(2)))
    return (_exp_beyond_1(a, shifted - SHIFT) + F(1)) * power * F(2)


@exact
def sinh(x: Any) -> Any:
    """The hyperbolic sine within 3 ulp."""
    a = abs(x)
    z = a * a
    half = _half_exp(a)
    far = half - F(0.25) / half
    return _with_sign(a * z * ((S7 * z + S5) * z + S3) + a if a < F(1) else far, bits_of(x))


@exact
def cosh(x: Any) -> Any:
    """The hyperbolic cosine within 3 ulp."""
    half = _half_exp(abs(x))
    return half + F(0.25) / half


# Pi in fixed point, and the quarters of a turn in 1, but for whole turns of a number's last digit,
# by its exponent: in two parts, of which the first has so few bits that its product is exact.
PI_BITS = 288
PI = 0x3243F6A8885A308D313198A2E03707344A4093822299F31D0082EFA98EC4E6C89452821E6


def _quarters(exponent: int) -> tuple[float, float]:
    """Return the number of quarters for numbers with a last digit of a power of two."""
    fixed = ((2 << 2 * PI_BITS + exponent) // PI) % (4 << PI_BITS)
    low = fixed % (1 << max(fixed.bit_length() - 29, 0))
    scale = 2 ** (PI_BITS + exponent)
    return (fixed - low) / scale, low / scale


QUARTERS = np.array([*map(_quarters, range(128 - 23)), (np.nan, np.nan)])
# Angles from here on take their exponent's quarters, which are looked up one by one.
FAR = F(2.0**22)


@exact
def _reduce(a: Any, far: Any) -> Any:
    """Return how many quarters of a turn an angle has, and the angle that is left."""
    place = max(INT(INT(bits_of(a) >> INT(23)) - INT(150)), INT(0)) if far else INT(0)
    wide = np.float64(a)
    high, low = wide * QUARTERS[place, 0], wide * QUARTERS[place, 1]
    n = np.rint(high + low)
    rest = (high - n) + low
    return INT(n), F(rest * np.float64(1.5707963267948966))


C3, C5, C7 = map(F, (-0.1666665524, 0.008332189173, -0.0001951829181))
D4, D6, D8 = map(F, (0.04166664556, -0.001388731063, 2.443256381e-05))


@exact
def _sin_cos(x: Any) -> Any:
    """Return sine and cosine up to an eighth of a turn."""
    z = x * x
    return x * z * ((C7 * z + C5) * z + C3) + x, z * z * ((D8 * z + D6) * z + D4) + (
        F(1) - F(0.5) * z
    )


@exact
def sin(x: Any, far: Any) -> Any:
    """The sine within 2 ulp."""
    n, rest = _reduce(abs(x), far)
    s, c = _sin_cos(rest)
    return _with_sign(c if n & INT(1) else s, INT(bits_of(x) ^ INT(n << INT(30))))


@exact
def cos(x: Any, far: Any) -> Any:
    """The cosine within 2 ulp."""
    n, rest = _reduce(abs(x), far)
    s, c = _sin_cos(rest)
    return _with_sign(s if n & INT(1) else c, INT(INT(n + INT(1)) << INT(30)))


@exact
def tan(x: Any, far: Any) -> Any:
    """The tangent within 4 ulp."""
    n, rest = _reduce(abs(x), far)
    s, c = _sin_cos(rest)
    odd = n & INT(1)
    return _with_sign((c if odd else s) / (s if odd else c), INT(bits_of(x) ^ INT(n << INT(31))))
