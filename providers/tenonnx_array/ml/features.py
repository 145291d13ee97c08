"""Choosing and joining features."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tenonnx.operators import Array, Namespace
from tenonnx_array.ml.staged import StagedTable

table = StagedTable("ai.onnx.ml")
op = table.op


@op("ArrayFeatureExtractor")
def array_feature_extractor(xp: Namespace) -> Callable[[Array, Array], Array]:
    """Makes X [..., F] and n indices, of any shape → X [..., n]; a vector X → [1, n]."""

    def run(X: Array, Y: Array) -> Array:
        X = X if X.ndim > 1 else X.reshape(1, -1)
        return xp.take(X, xp.reshape(Y, (-1,)), axis=-1)

    return run


@op("FeatureVectorizer")
def feature_vectorizer(
    xp: Namespace, *, inputdimensions: Sequence[int] = ()
) -> Callable[..., Array]:
    """Makes inputs [N, C₁], [N, C₂], ... → [N, C₁ + C₂ + ...] float32; a vector is one row."""

    def run(*X: Array) -> Array:
        flat = [x.reshape(len(x) if x.ndim > 1 else 1, -1) for x in X]
        widths = tuple(x.shape[1] for x in flat)
        if inputdimensions and widths != tuple(inputdimensions):
            raise ValueError(
                f"the inputs' widths {widths} must be inputdimensions {tuple(inputdimensions)}"
            )
        return xp.concatenate(flat, axis=1).astype(xp.float32)

    return run
