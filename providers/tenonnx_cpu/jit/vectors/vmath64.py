"""Elementary functions of float64, as ``vmath`` has them of float32."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types

from tenonnx_cpu.jit.vectors.vmath import exact, reinterpret

LOG2E = 1.4426950408889634
# The logarithm of 2: a multiple of the high part is exact.
LN2_HIGH, LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
# 1.5 * 2**52: adding it leaves a float's integer part in the low bits.
WHOLE_SHIFT = 6755399441055744.0
WHOLE_SHIFT_BITS = 0x4338000000000000

# The series of e**r, which is exact to half an ulp where r is at most log(2) / 2.
C2, C3, C4, C5, C6, C7, C8, C9, C10, C11, C12, C13 = (1 / math.factorial(n) for n in range(2, 14))


bits_of = reinterpret(types.float64, types.int64, ir.IntType(64))
float_of = reinterpret(types.int64, types.float64, ir.DoubleType())


@exact
def _power_of_two(n: Any) -> Any:
    return float_of(np.int64(n + 1023) << np.int64(52))


@exact
def exp(x: Any) -> Any:
    """e**x within 2 ulp, denormal results included."""
    x = 710.0 if x > 710.0 else x
    x = -746.0 if x < -746.0 else x
    shifted = x * LOG2E + WHOLE_SHIFT
    n = shifted - WHOLE_SHIFT
    r = (x - n * LN2_HIGH) - n * LN2_LOW
    p = ((((C13 * r + C12) * r + C11) * r + C10) * r + C9) * r + C8
    p = ((((((p * r + C7) * r + C6) * r + C5) * r + C4) * r + C3) * r + C2) * (r * r) + r + 1.0
    # Two factors, for 2**n itself may be beyond float64 where the result is not.
    power = np.int64(bits_of(shifted) - WHOLE_SHIFT_BITS)
    half = np.int64(power >> np.int64(1))
    return p * _power_of_two(half) * _power_of_two(np.int64(power - half))
