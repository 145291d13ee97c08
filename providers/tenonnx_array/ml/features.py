"""Choosing and joining features."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from tenonnx.by_name import cacheable
from tenonnx.operators import Array, Namespace
from tenonnx_array.axes import merged
from tenonnx_array.ml.staged import FEATURES, StagedTable

table = StagedTable("ai.onnx.ml")
op = table.op


@op("ArrayFeatureExtractor", shapes=FEATURES)
def array_feature_extractor(xp: Namespace) -> Callable[[Array, Array], Array]:
    """Make X [..., F] and n indices, of any shape → X [..., n]; a vector X → [1, n]."""
    return functools.partial(_extracted, xp)


@cacheable
def _extracted(xp: Namespace, X: Array, Y: Array) -> Array:
    X = X if X.ndim > 1 else X.reshape(1, -1)
    return xp.take(X, xp.reshape(Y, (-1,)), axis=-1)


@op("FeatureVectorizer")
def feature_vectorizer(
    xp: Namespace, *, inputdimensions: Sequence[int] = ()
) -> Callable[..., Array]:
    """Make inputs [N, C₁], [N, C₂], ... → [N, C₁ + C₂ + ...] float32; a vector is one row.

    With ``inputdimensions`` C they have so many columns: those of an input that are left over are
    not read, and those that are missing are zeros, as in onnxruntime.
    """
    if any(size < 0 for size in inputdimensions):
        raise ValueError(f"expected inputdimensions of at least 0, found {tuple(inputdimensions)}")

    return functools.partial(_joined, xp, tuple(inputdimensions))


@cacheable
def _joined(xp: Namespace, sizes: tuple[int, ...], *X: Array) -> Array:
    for number, x in enumerate(X, 1):
        if not x.ndim:
            raise ValueError(f"expected at least one axis, input {number} has none")
    flat = [merged(x, 1) if x.ndim > 1 else x[None] for x in X]
    if sizes and len(sizes) != len(flat):
        raise ValueError(f"expected inputdimensions for {len(flat)} inputs, found {len(sizes)}")
    if sizes:
        flat = [_of_width(xp, x, size) for x, size in zip(flat, sizes, strict=True)]
    return xp.concatenate(flat, axis=1).astype(xp.float32)


def _of_width(xp: Namespace, x: Array, width: int) -> Array:
    """Return the first columns of a matrix, with columns of zeros behind it if they are few."""
    if x.shape[1] >= width:
        return x[:, :width]
    zeros = xp.zeros((len(x), width - x.shape[1]), dtype=x.dtype)
    return xp.concatenate([x, zeros], axis=1)
