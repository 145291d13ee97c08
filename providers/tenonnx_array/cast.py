"""Cast between element types, and Identity.

Numbers convert as the specification's tables for ``Cast`` say; undefined conversions (floats out of
an integer's range) are the hardware's. Sub-byte integers keep the low bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx.operators import Array, Namespace, OperatorTable
from tenonnx_array.dtypes import FLOAT32_DTYPE, FLOATS, INTEGERS, dtype_of
from tenonnx_array.numerals import from_strings, to_strings

table = OperatorTable()
op = table.op


def identity(_: Namespace, x: Array) -> Array:
    """Return the array itself."""
    return x


table.rows({"Identity": identity})

# Types between which array libraries convert as ONNX says.
NUMBER_DTYPES = frozenset(dtype_of(number) for number in (*range(1, 8), 9, 10, 11, 12, 13, 14, 15))

STRING = np.dtype(np.object_)

E8M0 = "float8_e8m0fnu"

# Largest finite values. Dtypes are told apart by name: ml_dtypes takes long to import.
FLOAT8_MAX = {
    "float8_e4m3fn": 448.0,
    "float8_e4m3fnuz": 240.0,
    "float8_e5m2": 57344.0,
    "float8_e5m2fnuz": 57344.0,
}


def convert(
    xp: Namespace,
    x: Array,
    dtype: np.dtype[Any],
    *,
    saturate: int = 1,
    round_mode: str = "up",
) -> Array:
    """Return ``x`` as another dtype, itself if it is that already.

    Args:
        xp: The array namespace; strings are numpy's whatever it is.
        x: Any tensor.
        dtype: The dtype of an element type.
        saturate: Whether what overflows a float 8 is its largest value rather than inf or NaN.
        round_mode: ``up``, ``down`` or ``nearest``; for E8M0, the powers of two, only.
    """
    if not isinstance(x, str) and dtype in NUMBER_DTYPES and x.dtype in NUMBER_DTYPES:
        return x.astype(dtype, copy=False)
    if isinstance(x, str) or x.dtype == STRING:
        if dtype == STRING:
            return x
        number = FLOAT32_DTYPE if dtype.kind == "V" and dtype not in INTEGERS else dtype
        x = from_strings(x, number)
    elif dtype == STRING:
        return to_strings(x)
    if x.dtype == dtype:
        return x
    small = "" if dtype.isbuiltin == 1 else dtype.name
    if saturate and small in FLOAT8_MAX:
        x = _limited(xp, x, FLOAT8_MAX[small])
    elif small == E8M0:
        return _powers_of_two(xp, x, saturate, round_mode)
    elif dtype.kind == "V" and x.dtype.kind == "V":
        # ml_dtypes has no cast between some pairs of its types; either detour is exact.
        x = x.astype(np.int32 if x.dtype in INTEGERS else np.float32)
    return x.astype(dtype)


def _limited(xp: Namespace, x: Array, limit: float) -> Array:
    """Bring numbers into [-limit, limit]; NaN stays."""
    if x.dtype != np.float64:
        x = x.astype(np.float32)
    return xp.clip(x, -limit, limit)


def _powers_of_two(xp: Namespace, x: Array, saturate: int, round_mode: str) -> Array:
    """Return magnitudes as E8M0: exponents biased by 127, 255 for NaN; it has no zero."""
    x = xp.abs(x if x.dtype == np.float64 else x.astype(np.float32))
    fraction, exponent = xp.frexp(x)
    biased = exponent + 126 + _carries(fraction, round_mode)
    low, high = (0, 254) if saturate else (255, 255)
    biased = xp.where((x == 0) | (biased < 0), low, biased)
    biased = xp.where((x == np.inf) | (biased > 254), high, biased)
    return xp.where(xp.isnan(x), 255, biased).astype(np.uint8).view(dtype_of(24))


def _carries(fraction: Array, round_mode: str) -> Array:
    """Return which fractions, of [0.5, 1), round up to the next power of two."""
    if round_mode == "up":
        return fraction > 0.5
    if round_mode == "nearest":
        return fraction >= 0.75
    if round_mode == "down":
        return fraction >= 1.0
    raise ValueError(f"expected round_mode to be up, down or nearest, found {round_mode!r}")


@op("Cast", since=1)
def cast_1(xp: Namespace, x: Array, *, to: str) -> Array:
    """Cast to an element type given by name."""
    import onnx_ir as ir

    if to not in ir.DataType.__members__:
        raise ValueError(f"expected one of {', '.join(ir.DataType.__members__)}, found {to!r}")
    return convert(xp, x, dtype_of(ir.DataType[to]))


@op("Cast", since=6)
def cast_6(xp: Namespace, x: Array, *, to: int) -> Array:
    """Cast, before there were float 8 types."""
    return convert(xp, x, dtype_of(to))


@op("Cast", since=19)
def cast_19(xp: Namespace, x: Array, *, to: int, saturate: int = 1) -> Array:
    """Cast, with infinities that do not saturate in the FNUZ types."""
    return _convert_19(xp, x, dtype_of(to), saturate)


def _convert_19(xp: Namespace, x: Array, dtype: Any, saturate: int) -> Array:
    is_fnuz = dtype.isbuiltin != 1 and dtype.name.endswith("fnuz")
    if is_fnuz and not isinstance(x, str) and x.dtype in FLOATS:
        x = xp.where(xp.isinf(x), xp.nan, x)
    return convert(xp, x, dtype, saturate=saturate)


@op("Cast", since=24)
def cast(xp: Namespace, x: Array, *, to: int, saturate: int = 1, round_mode: str = "up") -> Array:
    """Cast; see `convert`."""
    return convert(xp, x, dtype_of(to), saturate=saturate, round_mode=round_mode)


@op("CastLike", since=15)
def cast_like_15(xp: Namespace, x: Array, target: Array) -> Array:
    """Cast to the dtype of another tensor."""
    return convert(xp, x, _dtype(target))


@op("CastLike", since=19)
def cast_like_19(xp: Namespace, x: Array, target: Array, *, saturate: int = 1) -> Array:
    """Cast to the dtype of another tensor, as Cast-19 does."""
    return _convert_19(xp, x, _dtype(target), saturate)


@op("CastLike", since=24)
def cast_like(
    xp: Namespace, x: Array, target: Array, *, saturate: int = 1, round_mode: str = "up"
) -> Array:
    """Cast to the dtype of another tensor; see `convert`."""
    return convert(xp, x, _dtype(target), saturate=saturate, round_mode=round_mode)


def _dtype(target: Array) -> np.dtype[Any]:
    return STRING if isinstance(target, str) else target.dtype
