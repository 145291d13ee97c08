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

    Intercepts count if there is one for each target, as in onnxruntime. It skips the post
    transforms of a single target; they are applied here.
    """
    scores_of = _affine(xp, coefficients, intercepts if len(intercepts) == targets else (), targets)
    transform = transform_of(post_transform)

    def run(X: Array) -> Array:
        return transform(xp, scores_of(X)).astype(xp.float32)

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

    There are as many scores as intercepts; without these, as the coefficients are enough for. One
    score for two classes is the second one's; see ``post.pair``.
    """
    scores_of = _affine(xp, coefficients, intercepts, len(intercepts))
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
    xp: Namespace, coefficients: Sequence[float], intercepts: Sequence[float], count: int
) -> Callable[[Array], Array]:
    """Return what makes ``count`` scores of rows; if that is 0, as many as there are weights for.

    Coefficients that are left over are not read, as in onnxruntime: of its own example, six are.
    """
    if count < 0:
        raise ValueError(f"expected one target or more, found {count}")
    weights = xp.asarray(coefficients, dtype=xp.float32)
    bias = xp.asarray(intercepts, dtype=xp.float32)

    def scores(X: Array) -> Array:
        X = rows(xp, X)
        features = X.shape[1]
        made = count or weights.size // max(features, 1)
        if weights.size < made * features or (not count and weights.size != made * features):
            raise ValueError(
                f"expected {made} x {features} coefficients, for the input has {features} "
                f"features, found {weights.size}"
            )
        product = X @ weights[: made * features].reshape(made, features).T
        return product + bias if bias.size else product

    return scores
