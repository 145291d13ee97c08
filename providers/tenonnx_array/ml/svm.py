"""Support vector machines, as libsvm evaluates them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from tenonnx.by_name import cacheable
from tenonnx.operators import Array, Namespace
from tenonnx_array.allocation import check_allocation
from tenonnx_array.ml.post import labels_of, pair, rows, transform_of
from tenonnx_array.ml.staged import ROWS_OPERAND, StagedTable
from tenonnx_array.nonlinear import sigmoid

table = StagedTable("ai.onnx.ml")
op = table.op


@op("SVMRegressor", shapes=ROWS_OPERAND)
def svm_regressor(
    xp: Namespace,
    *,
    coefficients: Sequence[float] = (),
    kernel_params: Sequence[float] = (),
    kernel_type: str = "LINEAR",
    n_supports: int = 0,
    one_class: int = 0,
    post_transform: str = "NONE",
    rho: Sequence[float] = (),
    support_vectors: Sequence[float] = (),
) -> Callable[[Array], Array]:
    """Make [N, F] → [N, 1] float32; ±1 if ``one_class``.

    Without support vectors the coefficients weigh the features themselves.
    """
    _at_least(coefficients, n_supports)
    # Those that are left over are not read, as in onnxruntime.
    weights = xp.asarray(coefficients[: n_supports or None], dtype=xp.float64)
    vectors = _vectors(xp, support_vectors, n_supports) if n_supports else xp.zeros((0, 0))
    similarity = _similarity(xp, kernel_type, kernel_params, vectors)
    transform = None if one_class else transform_of(post_transform)
    offset = rho[0] if rho else 0.0
    return Regression(xp, similarity if n_supports else None, weights, offset, transform)


@cacheable
@dataclass(frozen=True, eq=False)
class Regression:
    """Sums weighted similarities, or features.

    Attributes:
        xp: The array namespace.
        similarity: Of rows to the support vectors; ``None`` where features are weighted.
        weights: Of the similarities or features.
        offset: The summand.
        transform: What is done to the sums; ``None`` for their signs.
    """

    xp: Namespace
    similarity: Similarity | None
    weights: Array
    offset: float
    transform: Callable[[Namespace, Array], Array] | None

    def __call__(self, X: Array) -> Array:
        """Return the sums, [N, 1] float32."""
        xp = self.xp
        X = rows(xp, X, xp.float64)
        if self.similarity is None:
            _refuse_features(X, len(self.weights))
        found = X if self.similarity is None else self.similarity(X)
        scores = (found @ self.weights + self.offset)[:, None]
        if self.transform is None:
            return xp.where(scores > 0, 1, -1).astype(xp.float32)
        return self.transform(xp, scores).astype(xp.float32)


@op("SVMClassifier", host="all", multiple=True, shapes=ROWS_OPERAND)
def svm_classifier(
    xp: Namespace,
    *,
    classlabels_ints: Sequence[int] | None = None,
    classlabels_strings: Sequence[str] | None = None,
    coefficients: Sequence[float] = (),
    kernel_params: Sequence[float] = (),
    kernel_type: str = "LINEAR",
    post_transform: str = "NONE",
    prob_a: Sequence[float] = (),
    prob_b: Sequence[float] = (),
    rho: Sequence[float] = (),
    support_vectors: Sequence[float] = (),
    vectors_per_class: Sequence[int] = (),
) -> Callable[[Array], tuple[Array, Array]]:
    """Make [N, F] → labels [N] and scores [N, ...] float32.

    With ``prob_a`` and ``prob_b`` the scores are E probabilities. Without them they are, as in
    onnxruntime, the one-versus-one decisions: [N, E(E−1)/2], or the pair of ``post.pair`` for
    two classes. The label has the most decisions in its favor. Without support vectors the
    coefficients are E rows of weights of the features, and the largest score wins.
    """
    labels = labels_of(classlabels_ints, classlabels_strings)
    transform = transform_of(post_transform)
    if not vectors_per_class:
        return _linear(labels, coefficients, rho, transform)
    if min(vectors_per_class) < 0:
        raise ValueError(f"expected vectors_per_class of at least 0, found {vectors_per_class}")
    if not 1 < len(labels) == len(vectors_per_class):
        raise ValueError(
            f"expected two classes or more, each with its vectors, found {len(labels)} labels and "
            f"{len(vectors_per_class)} numbers in vectors_per_class"
        )
    vectors = _vectors(xp, support_vectors, sum(vectors_per_class))
    return Decisions(
        similarity=_similarity(xp, kernel_type, kernel_params, vectors),
        weights=_one_versus_one(coefficients, vectors_per_class),
        rho=_shifts(rho, len(vectors_per_class)),
        labels=labels,
        chance=(np.array(prob_a, np.float64), np.array(prob_b, np.float64)) if prob_a else None,
        post_transform=post_transform,
    )


@cacheable
class Decisions:
    """One-versus-one decisions, and the data for their labels and scores.

    Args:
        similarity: Makes [N, F] → [N, V].
        weights: Those of the vectors in each decision, [V, P].
        rho: The summands of the decisions, [P].
        labels: The classes', [E].
        chance: The slope and shift that make a decision a probability, [P] each, if they do.
        post_transform: The attribute.

    Attributes:
        couple: Makes class probabilities of pairwise ones: ``coupled``, or as fast a one.
    """

    def __init__(
        self,
        similarity: Callable[[Array], Array],
        weights: Array,
        rho: Array,
        labels: Array,
        chance: tuple[Array, Array] | None,
        post_transform: str,
    ) -> None:
        self._similarity, self._weights, self._rho = similarity, weights, rho
        self._labels = labels
        first, second = np.triu_indices(len(labels), 1)
        # Decisions lie by the first of two classes, and in this order by the second.
        self._by_second = np.argsort(second, kind="stable")
        self._firsts = np.flatnonzero(np.diff(first, prepend=-1))
        self._seconds = np.flatnonzero(np.diff(second[self._by_second], prepend=0))
        self._chance = chance
        self._post_transform = post_transform
        self._transform = transform_of(post_transform)
        self.couple: Callable[[Array, int], Array] = coupled

    def __call__(self, X: Array) -> tuple[Array, Array]:
        """Return the labels and scores of rows."""
        decisions = self._similarity(rows(np, X, np.float64)) @ self._weights + self._rho
        # Each decision is a vote for the first of two classes, or for the second.
        is_first = decisions > 0
        is_second = ~is_first[:, self._by_second]
        votes = np.zeros((len(decisions), len(self._labels)), np.intp)
        votes[:, :-1] = np.add.reduceat(is_first, self._firsts, axis=1, dtype=np.intp)
        votes[:, 1:] += np.add.reduceat(is_second, self._seconds, axis=1, dtype=np.intp)
        return self._labels[votes.argmax(axis=1)], self._scores(decisions).astype(np.float32)

    def _scores(self, decisions: Array) -> Array:
        if self._chance is not None:
            slope, shift = self._chance
            chances = sigmoid(np, -(decisions * slope + shift))
            return self._transform(np, self.couple(chances, len(self._labels)))
        if len(self._labels) == 2:
            return pair(np, decisions[:, 0], self._post_transform, signed=True)
        return self._transform(np, decisions)


def _linear(
    labels: Array,
    coefficients: Sequence[float],
    rho: Sequence[float],
    transform: Callable[[Namespace, Array], Array],
) -> Callable[[Array], tuple[Array, Array]]:
    weights = np.array(coefficients, np.float64).reshape(len(labels), -1).T
    return functools.partial(_decided, labels, weights, rho[0] if rho else 0.0, transform)


@cacheable
def _decided(
    labels: Array,
    weights: Array,
    offset: float,
    transform: Callable[[Namespace, Array], Array],
    X: Array,
) -> tuple[Array, Array]:
    scores = rows(np, X, np.float64) @ weights + offset
    return labels[scores.argmax(axis=1)], transform(np, scores).astype(np.float32)


def _vectors(xp: Namespace, support_vectors: Sequence[float], count: int) -> Array:
    if len(support_vectors) % count:
        raise ValueError(
            f"support_vectors holds {len(support_vectors)} numbers, not a multiple of the "
            f"{count} vectors"
        )
    return xp.asarray(support_vectors, dtype=xp.float64).reshape(count, -1)


KERNEL_TYPES = ("LINEAR", "POLY", "RBF", "SIGMOID")


def _similarity(
    xp: Namespace, kernel_type: str, kernel_params: Sequence[float], vectors: Array
) -> Similarity:
    """Return what tells how similar [N, F] are to the vectors [V, F], as [N, V]."""
    if kernel_type not in KERNEL_TYPES:
        raise ValueError(
            f"kernel_type must be one of {', '.join(KERNEL_TYPES)}, not {kernel_type!r}"
        )
    gamma, coef0, degree = kernel_params or (0.0, 0.0, 0.0)
    return Similarity(xp, kernel_type, vectors, gamma, coef0, degree)


@cacheable
class Similarity:
    """The similarity of rows to support vectors.

    Args:
        xp: The array namespace.
        kernel_type: One of ``KERNEL_TYPES``.
        vectors: [V, F].
        gamma: The factor of products or distances.
        coef0: The summand of products.
        degree: The power of a polynomial.
    """

    def __init__(
        self,
        xp: Namespace,
        kernel_type: str,
        vectors: Array,
        gamma: float,
        coef0: float,
        degree: float,
    ) -> None:
        self._xp, self._kernel, self._vectors = xp, kernel_type, vectors
        self._gamma, self._coef0, self._degree = gamma, coef0, degree
        self._square = gamma * (vectors * vectors).sum(axis=1)
        self._doubled = 2 * gamma * vectors.T

    def __call__(self, x: Array) -> Array:
        """Return the similarities of rows [N, F], as [N, V]."""
        xp = self._xp
        _refuse_features(x, self._vectors.shape[1])
        if self._kernel == "RBF":
            return xp.exp(self._minus_distance(x))
        products = x @ self._vectors.T
        if self._kernel == "LINEAR":
            return products
        scaled = self._gamma * products + self._coef0
        return scaled**self._degree if self._kernel == "POLY" else xp.tanh(scaled)

    def _minus_distance(self, x: Array) -> Array:
        """Return the negative squared distances times gamma."""
        xp = self._xp
        own = xp.matmul(x[:, None], x[:, :, None])[:, :, 0]
        return xp.minimum(x @ self._doubled - self._gamma * own - self._square, 0)


def _at_least(coefficients: Sequence[float], count: int) -> None:
    if len(coefficients) < count:
        raise ValueError(f"expected {count} coefficients or more, found {len(coefficients)}")


def _refuse_features(x: Array, count: int) -> None:
    if x.shape[1] != count:
        raise ValueError(f"expected {count} features, found {x.shape[1]}")


def _shifts(rho: Sequence[float], classes: int) -> Array:
    """Return the shift of the decision between each two classes; surplus shifts are not read."""
    pairs = classes * (classes - 1) // 2
    if len(rho) < pairs:
        raise ValueError(f"expected {pairs} numbers in rho or more, found {len(rho)}")
    return np.array(rho[:pairs])


def _one_versus_one(coefficients: Sequence[float], counts: Sequence[int]) -> Array:
    """Return the weights of the support vectors in the decision of each two classes, [V, P].

    libsvm keeps E − 1 coefficients per vector: a vector of class i weighs in against class j
    with row j − 1, one of class j against class i with row i (i < j).
    """
    needed = (len(counts) - 1) * sum(counts)
    _at_least(coefficients, needed)
    rows_ = np.array(coefficients[:needed], np.float64).reshape(len(counts) - 1, sum(counts))
    ends = np.cumsum(counts)
    of = [slice(end - count, end) for end, count in zip(ends, counts, strict=True)]
    pairs = list(combinations(range(len(counts)), 2))
    check_allocation(np, (sum(counts), len(pairs)), np.float64)
    weights = np.zeros((sum(counts), len(pairs)))
    for column, (i, j) in enumerate(pairs):
        weights[of[i], column] = rows_[j - 1, of[i]]
        weights[of[j], column] = rows_[i, of[j]]
    return weights


@cacheable
def coupled(chances: Array, classes: int) -> Array:
    """Return class probabilities from pairwise ones.

    Source: Wu, Lin and Weng, Probability Estimates for Multi-class Classification by Pairwise
    Coupling, JMLR 5 (2004), algorithm 2. Its coarse stopping rule, 0.005 / classes, shows in
    the third digit of the result, so that it has to be libsvm's.

    Args:
        chances: [N, P]; that a row is of class i rather than j, for each pair i < j.
        classes: How many classes there are.
    """
    first, second = np.triu_indices(classes, 1)
    chances = np.clip(chances, 1e-7, 1 - 1e-7)
    r = np.zeros((len(chances), classes, classes))
    r[:, first, second] = chances
    r[:, second, first] = 1 - chances
    Q = -r * r.transpose(0, 2, 1)
    diagonal = (r * r).sum(axis=1)
    Q[:, range(classes), range(classes)] = diagonal
    p = np.full((len(chances), classes), 1 / classes)
    for _ in range(max(100, classes)):
        Qp = (Q @ p[:, :, None])[:, :, 0]
        pQp = (p * Qp).sum(axis=1)
        moving = np.abs(Qp - pQp[:, None]).max(axis=1) >= 0.005 / classes
        if not moving.any():
            break
        p[moving] = _sweep(p[moving], Q[moving], diagonal[moving], Qp[moving], pQp[moving])
    return p


def _sweep(p: Array, Q: Array, diagonal: Array, Qp: Array, pQp: Array) -> Array:
    for t in range(p.shape[1]):
        step = (pQp - Qp[:, t]) / diagonal[:, t]
        p[:, t] += step
        pQp = (pQp + step * (step * diagonal[:, t] + 2 * Qp[:, t])) / (1 + step) ** 2
        Qp = (Qp + step[:, None] * Q[:, t]) / (1 + step)[:, None]
        p = p / (1 + step)[:, None]
    return p
