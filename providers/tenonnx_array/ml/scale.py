"""Rescaling features."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tenonnx.operators import Array, Namespace
from tenonnx_array.ml.staged import StagedTable

table = StagedTable("ai.onnx.ml")
op = table.op

Unary = Callable[[Array], Array]


@op("Binarizer")
def binarizer(xp: Namespace, *, threshold: float = 0.0) -> Unary:
    """Makes X → 1 where X exceeds the threshold, else 0, also for NaN; the dtype is X's."""

    def run(x: Array) -> Array:
        x = xp.asarray(x)
        return (x > threshold).astype(x.dtype)

    return run


@op("Scaler")
def scaler(xp: Namespace, *, offset: Sequence[float] = (), scale: Sequence[float] = ()) -> Unary:
    """Makes X [..., F] → (X − offset) · scale as float32; both have one element or F."""
    shift = xp.asarray(offset or (0.0,), dtype=xp.float32)
    factor = xp.asarray(scale or (1.0,), dtype=xp.float32)
    sizes = {size for size in (len(shift), len(factor)) if size > 1}

    def run(X: Array) -> Array:
        if sizes - {X.shape[-1] if X.ndim else 1}:
            raise ValueError(
                f"expected one offset and scale, or one for each of the {X.shape[-1]} features, "
                f"found {len(shift)} and {len(factor)}"
            )
        y = (X - shift) * factor
        return y if y.dtype == xp.float32 else y.astype(xp.float32)

    return run


@op("Normalizer")
def normalizer(xp: Namespace, *, norm: str = "MAX") -> Unary:
    """Makes X [N, C] or [C] → each row over its largest element, L1 or L2 norm, as float32.

    MAX takes the sign into account, as in the formula and unlike scikit-learn. A row whose divisor
    is zero stays as it is. Quotients are rounded as onnxruntime rounds them, for thresholds of
    trees were chosen by such: terms in float32, added one after the other, and L2 the root of a
    square's share of them.
    """
    terms: dict[str, Unary] = {"MAX": lambda X: X, "L1": xp.abs, "L2": xp.square}
    if norm not in terms:
        raise ValueError(f"norm must be one of {', '.join(terms)}, not {norm!r}")
    terms_of = terms[norm]

    def run(X: Array) -> Array:
        X = X.astype(xp.result_type(X.dtype, xp.float32), copy=False)
        x = X.astype(xp.float32, copy=False)
        if X.size == 0:
            return x
        parts = terms_of(X).astype(xp.float32, copy=False)
        whole = parts.max(-1, keepdims=True) if norm == "MAX" else xp.cumsum(parts, -1)[..., -1:]
        divisor = xp.where(whole == 0, xp.float32(1), whole)
        y = xp.copysign(xp.sqrt(parts / divisor), x) if norm == "L2" else x / divisor
        return xp.where(whole == 0, x, y)

    return run


@op("Imputer")
def imputer(
    xp: Namespace,
    *,
    imputed_value_floats: Sequence[float] = (),
    imputed_value_int64s: Sequence[int] = (),
    replaced_value_float: float = 0.0,
    replaced_value_int64: int = 0,
) -> Unary:
    """Makes X [..., F] → X with one value replaced; the new values are F, or else the first counts.

    Integer inputs use the integer attributes, the others those of floats.
    """

    @functools.cache
    def imputed(dtype: np.dtype[Any]) -> tuple[Array, float]:
        """Returns the new values for elements of a type, and the one that they replace."""
        whole = dtype.kind in "iu"
        values = imputed_value_int64s if whole else imputed_value_floats
        if not values:
            name = "imputed_value_int64s" if whole else "imputed_value_floats"
            raise ValueError(f"inputs of {dtype} need {name}")
        replaced = replaced_value_int64 if whole else replaced_value_float
        return xp.asarray(values, dtype=dtype), replaced

    def run(x: Array) -> Array:
        values, replaced = imputed(x.dtype)
        values = values if x.ndim and len(values) == x.shape[-1] else values[0]
        return xp.where(x == replaced if replaced == replaced else x != x, values, x)

    return run
