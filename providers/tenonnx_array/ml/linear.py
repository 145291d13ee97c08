"""Linear models."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tenonnx.by_name import cacheable
from tenonnx.operators import Array, Namespace
from tenonnx_array.ml.post import labels_of, pair, rows, transform_of
from tenonnx_array.ml.staged import ROWS_OPERAND, StagedTable

Transform: TypeAlias = Callable[[Namespace, Array], Array]

table = StagedTable("ai.onnx.ml")
op = table.op


@op("LinearRegressor", shapes=ROWS_OPERAND)
def linear_regressor(
    xp: Namespace,
    *,
    coefficients: Sequence[float] = (),
    intercepts: Sequence[float] = (),
    targets: int = 1,
    post_transform: str = "NONE",
) -> Callable[[Array], Array]:
    """Make [N, F] → [N, targets] float32; a vector is one row.

    Intercepts count if there is one for each target, as in onnxruntime. It skips the post
    transforms of a single target; they are applied here.
    """
    scores = _affine(xp, coefficients, intercepts if len(intercepts) == targets else (), targets)
    return functools.partial(_regressed, scores, transform_of(post_transform))


@cacheable
def _regressed(scores: Affine, transform: Transform, X: Array) -> Array:
    return transform(scores.xp, scores(X)).astype(scores.xp.float32)


@op("LinearClassifier", host="all", multiple=True, shapes=ROWS_OPERAND)
def linear_classifier(
    xp: Namespace,
    *,
    coefficients: Sequence[float],
    intercepts: Sequence[float] = (),
    classlabels_ints: Sequence[int] | None = None,
    classlabels_strings: Sequence[str] | None = None,
    multi_class: int = 0,  # noqa: ARG001 - one-versus-rest and multinomial scores are alike
    post_transform: str = "NONE",
) -> Callable[[Array], tuple[Array, Array]]:
    """Make [N, F] → labels [N] and scores [N, E] float32; a vector is one row.

    There are as many scores as intercepts; without these, as the coefficients are enough for. One
    score for two classes is the second one's; see ``post.pair``.
    """
    transform_of(post_transform)
    scores = _affine(xp, coefficients, intercepts, len(intercepts))
    labels = labels_of(classlabels_ints, classlabels_strings)
    return functools.partial(_classified, scores, labels, post_transform)


@cacheable
def _classified(
    scores_of: Affine, labels: Array, post_transform: str, X: Array
) -> tuple[Array, Array]:
    xp, scores = scores_of.xp, scores_of(X)
    if scores.shape[1] == 1 and len(labels) == 2:
        winner = (scores[:, 0] > 0).astype(xp.intp)
        scores = pair(xp, scores[:, 0], post_transform, signed=False)
    elif scores.shape[1] == len(labels):
        winner = scores.argmax(axis=1)
        scores = transform_of(post_transform)(xp, scores)
    else:
        raise ValueError(
            f"{scores_of.weights.size} coefficients score {scores.shape[1]} classes of the "
            f"{X.shape[-1]} features, the node labels {len(labels)}"
        )
    return labels[winner], scores.astype(xp.float32)


def _affine(
    xp: Namespace, coefficients: Sequence[float], intercepts: Sequence[float], count: int
) -> Affine:
    """Return what makes ``count`` scores of rows; if that is 0, as many as there are weights for.

    Coefficients that are left over are not read, as in onnxruntime: of its own example, six are.
    """
    if count < 0:
        raise ValueError(f"expected one target or more, found {count}")
    weights = xp.asarray(coefficients, dtype=xp.float32)
    return Affine(xp, weights, xp.asarray(intercepts, dtype=xp.float32), count)


@cacheable
@dataclass(frozen=True, eq=False)
class Affine:
    """Scores rows of features.

    Attributes:
        xp: The array namespace.
        weights: The coefficients, flat; those of a score are side by side.
        bias: One number for every score, or none.
        count: The number of scores; 0 for as many as there are weights for.
    """

    xp: Namespace
    weights: Array
    bias: Array
    count: int

    def __call__(self, X: Array) -> Array:
        """Return the scores, (N, scores)."""
        X, weights = rows(self.xp, X), self.weights
        features = X.shape[1]
        made = self.count or weights.size // max(features, 1)
        if weights.size < made * features or (not self.count and weights.size != made * features):
            raise ValueError(
                f"expected {made} x {features} coefficients, for the input has {features} "
                f"features, found {weights.size}"
            )
        product = X @ weights[: made * features].reshape(made, features).T
        return product + self.bias if self.bias.size else product
