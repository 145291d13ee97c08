"""Linear models."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tenonnx.operators import Array, Namespace
from tenonnx_array.ml.post import labels_of, pair, rows, transform_of
from tenonnx_array.ml.staged import StagedTable

table = StagedTable("ai.onnx.ml")
op = table.op


@op("LinearRegressor")
def linear_regressor(
    xp: Namespace,
    *,
    coefficients: Sequence[float] = (),
    intercepts: Sequence[float] = (),
    targets: int = 1,
    post_transform: str = "NONE",
) -> Callable[[Array], Array]:
    """Makes [N, F] → [N, targets] float32; a vector is one row.

    onnxruntime skips the post transforms of a single target; they are applied here.
    """
    scores_of = _affine(xp, coefficients, intercepts)
    transform = transform_of(post_transform)

    def run(X: Array) -> Array:
        scores = scores_of(X)
        if scores.shape[1] != targets:
            raise ValueError(
                f"{len(coefficients)} coefficients make {scores.shape[1]} targets of the "
                f"{X.shape[-1]} features, expected {targets}"
            )
        return transform(xp, scores).astype(xp.float32)

    return run


@op("LinearClassifier", host="all", multiple=True)
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
    """Makes [N, F] → labels [N] and scores [N, E] float32; a vector is one row.

    One row of coefficients for two classes scores the second one; see ``post.pair``.
    """
    scores_of = _affine(xp, coefficients, intercepts)
    labels = labels_of(classlabels_ints, classlabels_strings)
    transform = transform_of(post_transform)

    def run(X: Array) -> tuple[Array, Array]:
        scores = scores_of(X)
        if scores.shape[1] == 1 and len(labels) == 2:
            winner = (scores[:, 0] > 0).astype(xp.intp)
            scores = pair(xp, scores[:, 0], post_transform, signed=False)
        elif scores.shape[1] == len(labels):
            winner = scores.argmax(axis=1)
            scores = transform(xp, scores)
        else:
            raise ValueError(
                f"{len(coefficients)} coefficients score {scores.shape[1]} classes of the "
                f"{X.shape[-1]} features, the node labels {len(labels)}"
            )
        return labels[winner], scores.astype(xp.float32)

    return run


def _affine(
    xp: Namespace, coefficients: Sequence[float], intercepts: Sequence[float]
) -> Callable[[Array], Array]:
    weights = xp.asarray(coefficients, dtype=xp.float32)
    bias = xp.asarray(intercepts, dtype=xp.float32)

    def scores(X: Array) -> Array:
        X = rows(xp, X)
        if weights.size % X.shape[1]:
            raise ValueError(
                f"the {weights.size} coefficients must be a multiple of the {X.shape[1]} features"
            )
        product = X @ weights.reshape(-1, X.shape[1]).T
        return product + bias if bias.size else product

    return scores
