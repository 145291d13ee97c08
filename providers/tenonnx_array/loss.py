"""Losses over class labels: NegativeLogLikelihoodLoss, SoftmaxCrossEntropyLoss."""

from __future__ import annotations

from tenonnx.operators import Array, Namespace, OperatorTable
from tenonnx_array.dtypes import accumulator

table = OperatorTable()
op = table.op


@op("NegativeLogLikelihoodLoss", since=12, shapes="input: N C ...; target: N *input[2:]; weight: C")
def negative_log_likelihood_loss(
    xp: Namespace,
    input: Array,  # noqa: A002 - the specification's name
    target: Array,
    weight: Array | None = None,
    *,
    ignore_index: int | None = None,
    reduction: str = "mean",
) -> Array:
    """Return minus the log-probability of each target class, weighted, and reduced.

    Args:
        xp: The array namespace.
        input: Log-probabilities of shape (batch, classes, ...).
        target: Classes of shape (batch, ...).
        weight: One weight per class.
        ignore_index: A target that counts nothing, neither in the sum nor in the mean.
        reduction: none, sum, or mean, the sum divided by the sum of the weights.

    Raises:
        ValueError: Another reduction.
    """
    wide = accumulator(input.dtype)
    loss = likelihood(xp, input.astype(wide, copy=False), target, weight, ignore_index, reduction)
    return loss.astype(input.dtype, copy=False)


@op(
    "SoftmaxCrossEntropyLoss",
    since=12,
    multiple=True,
    shapes="scores: N C ...; labels: N *scores[2:]; weights: C",
)
def softmax_cross_entropy_loss(
    xp: Namespace,
    scores: Array,
    labels: Array,
    weights: Array | None = None,
    *,
    ignore_index: int | None = None,
    reduction: str = "mean",
) -> tuple[Array, Array]:
    """Return NegativeLogLikelihoodLoss of the log-softmax over axis 1, and the log-softmax."""
    x = scores.astype(accumulator(scores.dtype), copy=False)
    x = x - xp.max(x, axis=1, keepdims=True)
    x = x - xp.log(xp.sum(xp.exp(x), axis=1, keepdims=True))
    loss = likelihood(xp, x, labels, weights, ignore_index, reduction)
    return loss.astype(scores.dtype, copy=False), x.astype(scores.dtype, copy=False)


def likelihood(
    xp: Namespace,
    log_prob: Array,
    target: Array,
    weight: Array | None,
    ignore_index: int | None,
    reduction: str,
) -> Array:
    """Return the reduced negative log-likelihood, in the log-probabilities' type."""
    if reduction not in ("none", "sum", "mean"):
        raise ValueError(f"expected a reduction of none, sum or mean, found {reduction!r}")
    counted = None if ignore_index is None else target != ignore_index
    index = target if counted is None else xp.where(counted, target, 0)
    loss = -xp.take_along_axis(log_prob, xp.expand_dims(index, 1), axis=1)[:, 0]
    weights = None if weight is None else weight.astype(loss.dtype)[index]
    if counted is not None:
        weights = counted.astype(loss.dtype) if weights is None else xp.where(counted, weights, 0)
        loss = xp.where(counted, loss, 0)
    if weights is not None:
        loss = loss * weights
    if reduction == "none":
        return loss
    if reduction == "mean":
        return xp.mean(loss) if weights is None else xp.sum(loss) / xp.sum(weights)
    return xp.sum(loss)
