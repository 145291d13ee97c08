"""Rescaling features."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tenonnx.by_name import cacheable
from tenonnx.operators import Array, Namespace
from tenonnx_array.ml.staged import FEATURES, ROWS_OPERAND, StagedTable

table = StagedTable("ai.onnx.ml")
op = table.op

Unary = Callable[[Array], Array]


@op("Binarizer")
def binarizer(xp: Namespace, *, threshold: float = 0.0) -> Unary:
    """Make X → 1 where X exceeds the threshold, else 0, also for NaN; the dtype is X's."""
    return functools.partial(_binarized, xp, threshold)


@cacheable
def _binarized(xp: Namespace, threshold: float, x: Array) -> Array:
    x = xp.asarray(x)
    return (x > threshold).astype(x.dtype)


@op("Scaler", shapes=FEATURES)
def scaler(xp: Namespace, *, offset: Sequence[float] = (), scale: Sequence[float] = ()) -> Unary:
    """Make X [..., F] → (X − offset) · scale as float32; both have one element or F."""
    shift = xp.asarray(offset or (0.0,), dtype=xp.float32)
    factor = xp.asarray(scale or (1.0,), dtype=xp.float32)
    return functools.partial(_scaled, xp, shift, factor)


@cacheable
def _scaled(xp: Namespace, shift: Array, factor: Array, X: Array) -> Array:
    features = X.shape[-1] if X.ndim else 1
    if len(shift) not in (1, features) or len(factor) not in (1, features):
        raise ValueError(
            f"expected one offset and scale, or one for each of the {features} features, "
            f"found {len(shift)} and {len(factor)}"
        )
    y = (X - shift) * factor
    return y if y.dtype == xp.float32 else y.astype(xp.float32)


@op("Normalizer", shapes=ROWS_OPERAND)
def normalizer(xp: Namespace, *, norm: str = "MAX") -> Unary:
    """Make X [N, C] or [C] → each row over its largest element, L1 or L2 norm, as float32.

    MAX takes the sign into account, as in the formula and unlike scikit-learn. A row whose divisor
    is zero stays as it is. Quotients are rounded as onnxruntime rounds them, for thresholds of
    trees were chosen by such: terms in float32, added one after the other, and L2 the root of a
    square's share of them.
    """
    if norm not in NORM_KINDS:
        raise ValueError(f"norm must be one of {', '.join(NORM_KINDS)}, not {norm!r}")
    return functools.partial(_normalized, xp, norm)


NORM_KINDS = ("MAX", "L1", "L2")


@cacheable
def _normalized(xp: Namespace, norm: str, X: Array) -> Array:
    X = X.astype(xp.result_type(X.dtype, xp.float32), copy=False)
    x = X.astype(xp.float32, copy=False)
    if X.size == 0:
        return x
    terms = X if norm == "MAX" else xp.abs(X) if norm == "L1" else xp.square(X)
    parts = terms.astype(xp.float32, copy=False)
    whole = parts.max(-1, keepdims=True) if norm == "MAX" else xp.cumsum(parts, -1)[..., -1:]
    divisor = xp.where(whole == 0, xp.float32(1), whole)
    y = xp.copysign(xp.sqrt(parts / divisor), x) if norm == "L2" else x / divisor
    return xp.where(whole == 0, x, y)


@op("Imputer", shapes=FEATURES)
def imputer(
    xp: Namespace,
    *,
    imputed_value_floats: Sequence[float] = (),
    imputed_value_int64s: Sequence[int] = (),
    replaced_value_float: float = 0.0,
    replaced_value_int64: int = 0,
) -> Unary:
    """Make X [..., F] → X with one value replaced; the new values are F, or else the first counts.

    Integer inputs use the integer attributes, the others those of floats.
    """
    whole = tuple(imputed_value_int64s), replaced_value_int64
    real = tuple(imputed_value_floats), replaced_value_float
    return Imputer(xp, whole, real)


@cacheable
class Imputer:
    """A replacement of one value of arrays.

    Args:
        xp: The array namespace.
        whole: The new values of integers, and the one that they replace.
        real: Those of other numbers.
    """

    def __init__(
        self,
        xp: Namespace,
        whole: tuple[tuple[int, ...], int],
        real: tuple[tuple[float, ...], float],
    ) -> None:
        self._xp, self._whole, self._real = xp, whole, real
        self._known: dict[np.dtype[Any], Array] = {}

    def __call__(self, x: Array) -> Array:
        """Return the array without the value."""
        _, replaced = self._whole if x.dtype.kind in "iu" else self._real
        if (values := self._known.get(x.dtype)) is None:
            values = self._known[x.dtype] = self._values(x.dtype)
        values = values if x.ndim and len(values) == x.shape[-1] else values[0]
        return self._xp.where(x == replaced if replaced == replaced else x != x, values, x)

    def _values(self, dtype: np.dtype[Any]) -> Array:
        """Return the new values for elements of a type."""
        is_whole = dtype.kind in "iu"
        values, _ = self._whole if is_whole else self._real
        if not values:
            name = "imputed_value_int64s" if is_whole else "imputed_value_floats"
            raise ValueError(f"inputs of {dtype} need {name}")
        return self._xp.asarray(values, dtype=dtype)
