"""Common parts of classifiers and regressors: rows in, post-transformed scores and labels out."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import numpy as np

from tenonnx.by_name import cacheable
from tenonnx.operators import Array, Namespace
from tenonnx_array.ml.probit import probit
from tenonnx_array.softmax import softmax

Transform = Callable[[Namespace, Array], Array]


def rows(xp: Namespace, X: Array, dtype: object = None) -> Array:
    """Return ``X`` as [N, F]: a vector is one row, int and half become float64 and float32.

    Args:
        xp: The array namespace.
        X: [N, F] or [F], any real dtype.
        dtype: The least precise dtype to return; float32 unless given.
    """
    X = xp.asarray(X)
    X = X.astype(xp.result_type(X.dtype, dtype or xp.float32), copy=False)
    return X if X.ndim > 1 else X.reshape(1, -1)


def labels_of(ints: Sequence[int] | None, strings: Sequence[str] | None) -> Array:
    """Return the class labels as a numpy array: int64, or objects that are ``str``.

    Raises:
        ValueError: Neither attribute, or both, hold labels.
    """
    if bool(ints) == bool(strings):
        found = "both" if ints else "neither"
        raise ValueError(f"labels must be given as integers or as strings, found {found}")
    return np.array(strings, object) if strings else np.array(ints, np.int64)


@cacheable
def softmax_zero(xp: Namespace, scores: Array) -> Array:
    """Return the softmax of each row's nonzero scores; zeros stay zero, alone or together.

    Like onnxruntime, this takes what is closer to zero than 1e-7 for zero.
    """
    if scores.size == 0:
        return scores
    exp = xp.exp(scores - scores.max(axis=1, keepdims=True))
    exp = xp.where(xp.abs(scores) < 1e-7, 0, exp)
    total = exp.sum(axis=1, keepdims=True)
    return exp / xp.where(total == 0, 1, total)


def logistic(xp: Namespace, scores: Array) -> Array:
    """Return 1 / (1 + exp(−scores)), by the exponential that cannot overflow."""
    small = xp.exp(-xp.abs(scores))
    return xp.where(scores < 0, small, 1) / (1 + small)


@cacheable
def _unchanged(xp: Namespace, scores: Array) -> Array:  # noqa: ARG001 - others need it
    return scores


# From [N, E] to [N, E], in the order of TreeEnsemble-5's enumeration.
TRANSFORMS: dict[str, Transform] = {
    "NONE": _unchanged,
    "SOFTMAX": functools.partial(softmax, axis=1),
    "LOGISTIC": logistic,
    "SOFTMAX_ZERO": softmax_zero,
    "PROBIT": probit,
}


def transform_of(name: str) -> Transform:
    """Return the transform that ``post_transform`` names.

    Raises:
        ValueError: It names none.
    """
    if name not in TRANSFORMS:
        raise ValueError(f"post_transform must be one of {', '.join(TRANSFORMS)}, not {name!r}")
    return TRANSFORMS[name]


def pair(xp: Namespace, score: Array, post_transform: str, *, signed: bool) -> Array:
    """Return the two columns [N, 2] of a classifier that computes one score for two classes.

    The specification is silent here; this is onnxruntime's reading. The first class scores
    ``-score`` if scores are signed and ``1 - score`` if they are probabilities; LOGISTIC turns
    a score of either kind into two that sum to one, and the softmaxes leave the pair alone.

    Args:
        xp: The array namespace.
        score: The second class's scores, [N].
        post_transform: The attribute.
        signed: Scores are symmetric around zero, not within [0, 1].
    """
    transform = transform_of(post_transform)
    signed = signed or post_transform == "LOGISTIC"
    scores = xp.stack([-score if signed else 1 - score, score], axis=1)
    return transform(xp, scores) if post_transform in ("LOGISTIC", "PROBIT") else scores
