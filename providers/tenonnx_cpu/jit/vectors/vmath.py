"""Elementary functions of float32 without branches or calls, so that LLVM vectorizes their loops.

Polynomials and rational functions are weighted least-squares fits in float64. The errors stated
are in units in the last place (ulp), over the whole range; NaN gives NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types

from tenonnx_cpu.jit.code import numba_target
from tenonnx_cpu.jit.vectors import vector as v
from tenonnx_cpu.jit.vectors.vector import Builder, Value

F = np.float32


def exact(function: Callable[..., Any]) -> Any:
    """Decorate a function whose steps must not be reordered; products and sums may be fused."""
    return numba_target.njit(
        error_model="numpy",
        fastmath={"contract"},
        forceinline=True,
    )(function)


def reinterpret(source: Any, target: Any, kind: ir.Type) -> Any:
    """Return what returns the number of another type that has a number's bits."""

    @v.inline_llvm(target, source)
    def same_bits(b: Builder, value: Value) -> Value:
        return b.bitcast(value, kind)

    return same_bits


bits_of = reinterpret(types.float32, types.int32, ir.IntType(32))
float_of = reinterpret(types.int32, types.float32, ir.FloatType())

LOG2E = F(1.4426950408889634)
LN2_HIGH, LN2_LOW = F(0.693359375), F(-2.12194440e-4)
# 1.5 * 2**23: adding it leaves a float's integer part in the low bits.
SHIFT = F(12582912.0)
SHIFT_BITS = np.int32(0x4B400000)
E2, E3, E4, E5, E6 = map(F, (0.49999994, 0.1666652, 0.041668486, 0.008368855, 0.00138106))


@exact
def _exp_beyond_1(x: Any, n: Any) -> Any:
    """e**r - 1 of what ``x`` is beyond ``n`` times log(2), of which it has about n."""
    r = (x - n * LN2_HIGH) - n * LN2_LOW
    return ((((E6 * r + E5) * r + E4) * r + E3) * r + E2) * (r * r) + r


@exact
def exp(x: Any) -> Any:
    """e**x within 2 ulp, denormal results included."""
    x = F(89) if x > F(89) else x
    x = F(-104) if x < F(-104) else x
    shifted = x * LOG2E + SHIFT
    p = _exp_beyond_1(x, shifted - SHIFT) + F(1)
    # Two factors, for 2**n itself may be beyond float32 where the result is not.
    power = np.int32(bits_of(shifted) - SHIFT_BITS)
    half = np.int32(power >> 1)
    return p * _power_of_two(half) * _power_of_two(np.int32(power - half))


@exact
def _exp_of_normal(x: Any) -> Any:
    """e**x within 2 ulp where x and that are normal numbers."""
    shifted = x * LOG2E + SHIFT
    p = _exp_beyond_1(x, shifted - SHIFT) + F(1)
    return p * _power_of_two(np.int32(bits_of(shifted) - SHIFT_BITS))


@exact
def _power_of_two(n: Any) -> Any:
    return float_of(np.int32(np.int32(n + np.int32(127)) << np.int32(23)))


@exact
def sigmoid(x: Any) -> Any:
    """1 / (1 + e**-x): within 0.7 ulp for abs(x) < 0.34, 3 elsewhere; 0 below -88.37.

    Of -88.37 it would be no normal number.
    """
    x = F(89) if -x > F(89) else -x
    x = F(-87) if x < F(-87) else x
    shifted = x * LOG2E + SHIFT
    n = shifted - SHIFT
    q = _exp_beyond_1(x, n)
    total = F(1) + (q + F(1)) * _power_of_two(np.int32(bits_of(shifted) - SHIFT_BITS))
    # 1 / (2 + q) is 1/2 less q/2 / (2 + q): what that is rounded by counts little beside 1/2.
    near = n == F(0)
    return (F(0.5) if near else F(0)) + (F(-0.5) * q if near else F(1)) / total


T1, T2, T3, T4, T5 = map(
    F, (0.13679923, 0.0038683373, 2.8007649e-05, 3.0585465e-08, -1.2203776e-11)
)
U1, U2, U3, U4 = map(F, (0.47013256, 0.027245874, 0.00039386479, 1.2873796e-06))


@exact
def tanh(x: Any) -> Any:
    """The hyperbolic tangent within 6 ulp."""
    x = F(9.02) if x > F(9.02) else x
    x = F(-9.02) if x < F(-9.02) else x
    t = x * x
    p = ((((T5 * t + T4) * t + T3) * t + T2) * t + T1) * t + F(1)
    q = (((U4 * t + U3) * t + U2) * t + U1) * t + F(1)
    return _within_one(x * p / q)


@exact
def gate(x: Any) -> Any:
    """1 / (1 + e**-x) within 2**-22, whatever x: what a recurrent layer's gates let through.

    ``sigmoid`` is exact to the last digits of small results as well, and takes longer.
    """
    return F(0.5) + F(0.5) * tanh(F(0.5) * x)


# erf(x) / x - 1 in x * x for abs(x) <= 1, and log(erfc(x)) for 1 <= x <= 3.95.
P0, P1, P2, P3, P4, P5, P6 = map(
    F,
    (
        0.1283791657, -0.3761262582, 0.1128358512, -0.02685381099, 0.005188326279,
        -0.0008010183894, 7.853836115e-05,
    ),
)  # fmt: skip
Q0, Q1, Q2, Q3, Q4, Q5, Q6 = map(
    F,
    (
        -0.0003414231739, -1.127089578, -0.6381442151, -0.1031072687, 0.02183830003,
        -0.002947714942, 0.0001863847412,
    ),
)  # fmt: skip


@exact
def erf(x: Any) -> Any:
    """The error function within 1.2 ulp."""
    a = x if x > F(0) else -x
    a = F(3.95) if a > F(3.95) else a
    t = a * a
    p = (((((P6 * t + P5) * t + P4) * t + P3) * t + P2) * t + P1) * t + P0
    q = (((((Q6 * a + Q5) * a + Q4) * a + Q3) * a + Q2) * a + Q1) * a + Q0
    far = F(1) - _exp_of_normal(q)
    return x * p + x if a < F(1) else (far if x > F(0) else -far)


@exact
def _within_one(y: Any) -> Any:
    y = F(1) if y > F(1) else y
    return F(-1) if y < F(-1) else y


@exact
def gelu(x: Any) -> Any:
    """x/2 * (1 + erf(x / sqrt(2))): within 1e-6 of the exact value, times max(1, abs(x))."""
    return F(0.5) * x * (F(1) + erf(x * F(0.7071067811865476)))


@exact
def gelu_tanh(x: Any) -> Any:
    """x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x**3))), as exact as ``gelu``."""
    # 1 + tanh(z) is twice the sigmoid of 2 z.
    twice = F(1.5957691216057308) * (x + F(0.044715) * x * x * x)
    return x * sigmoid(twice)


@exact
def silu(x: Any) -> Any:
    """The product x * sigmoid(x) within 4 ulp; -0 below -88.37, NaN at minus infinity."""
    return x * sigmoid(x)
