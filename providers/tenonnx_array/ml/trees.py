"""Decision trees and their ensembles."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from tenonnx.by_name import cacheable
from tenonnx.operators import Array, Namespace
from tenonnx_array.ml.forest import AGGREGATES, MAX_INDEX, Forest, check_range
from tenonnx_array.ml.post import TRANSFORMS, labels_of, pair, rows, transform_of
from tenonnx_array.ml.staged import ROWS_OPERAND, StagedTable
from tenonnx_array.ml.treelist import Ints, TreeList, check_lengths, flags
from tenonnx_array.ml.walk import Nodes, distinct

table = StagedTable("ai.onnx.ml")
op = table.op

# Attributes that version 3 added.
TENSORS = ("base_values_as_tensor", "nodes_hitrates_as_tensor", "nodes_values_as_tensor")

Floats = Sequence[float]

NO_BASE: Array = np.zeros(0, np.float32)


@cacheable
class Scores:
    """A forest's scores after a transform, [N, E]; a vector is one row.

    Args:
        xp: The array namespace.
        forest: The forest.
        post_transform: The transform's name.
        base: The base values of the scores, [E], or nothing.
        keeps_dtype: The result has the dtype of the rows, otherwise float32.
    """

    def __init__(
        self,
        xp: Namespace,
        forest: Forest,
        post_transform: str,
        base: Array = NO_BASE,
        *,
        keeps_dtype: bool = False,
    ) -> None:
        self._xp = xp
        self._transform = transform_of(post_transform)
        self.transforms = post_transform != "NONE"
        self.forest = forest
        self.base = xp.asarray(base)
        self.keeps_dtype = keeps_dtype

    def __call__(self, X: Array) -> Array:
        """Return the scores of rows."""
        xp = self._xp
        scores = self.forest.scores(rows(xp, X))
        scores = self._transform(xp, scores + self.base if self.base.size else scores)
        return scores.astype(X.dtype if self.keeps_dtype else xp.float32)


@cacheable
class Choice(NamedTuple):
    """A forest's choice of a class: labels [N] and scores [N, E] float32; a vector is one row.

    Attributes:
        forest: The forest.
        labels: The classes' labels.
        decide: Returns the winner's index and the scores after the transform.
    """

    forest: Forest
    labels: Array
    decide: Callable[[Array], tuple[Array, Array]]

    def __call__(self, X: Array) -> tuple[Array, Array]:
        """Return labels and scores of rows."""
        winner, scores = self.decide(self.forest.scores(rows(np, X)))
        return self.labels[winner], scores.astype(np.float32)


@op("TreeEnsemble", since=5, shapes=ROWS_OPERAND)
def tree_ensemble(
    xp: Namespace,
    *,
    aggregate_function: int = 1,
    leaf_targetids: Ints,
    leaf_weights: Array,
    membership_values: Array | None = None,
    n_targets: int | None = None,
    nodes_falseleafs: Ints,
    nodes_falsenodeids: Ints,
    nodes_featureids: Ints,
    nodes_hitrates: Array | None = None,  # noqa: ARG001 - a hint about speed
    nodes_missing_value_tracks_true: Ints = (),
    nodes_modes: Array,
    nodes_splits: Array,
    nodes_trueleafs: Ints,
    nodes_truenodeids: Ints,
    post_transform: int = 0,
    tree_roots: Ints,
) -> Scores:
    """Make [N, F] → [N, n_targets] of X's dtype."""
    check_lengths(
        len(nodes_featureids),
        nodes_modes=nodes_modes,
        nodes_splits=nodes_splits,
        nodes_truenodeids=nodes_truenodeids,
        nodes_falsenodeids=nodes_falsenodeids,
        nodes_trueleafs=nodes_trueleafs,
        nodes_falseleafs=nodes_falseleafs,
    )
    check_lengths(len(leaf_targetids), leaf_weights=leaf_weights)
    true, false = np.array(nodes_truenodeids, np.intp), np.array(nodes_falsenodeids, np.intp)
    check_range("nodes_truenodeids", true, 0, MAX_INDEX)
    check_range("nodes_falsenodeids", false, 0, MAX_INDEX)
    check_range("tree_roots", np.array(tree_roots, np.intp), 0, MAX_INDEX)
    nodes = Nodes(
        feature=np.array(nodes_featureids, np.intp),
        mode=np.asarray(nodes_modes),
        split=_splits(nodes_splits),
        missing=flags(nodes_missing_value_tracks_true, len(true)),
        true=np.where(np.array(nodes_trueleafs, bool), ~true, true),
        false=np.where(np.array(nodes_falseleafs, bool), ~false, false),
        members=_splits(np.array([]) if membership_values is None else membership_values),
        roots=np.array(tree_roots, np.intp),
    )
    target = np.array(leaf_targetids, np.intp)
    votes = np.arange(len(target)), target, np.asarray(leaf_weights, np.float64)
    targets = int(target.max(initial=-1)) + 1 if n_targets is None else n_targets
    aggregate = _named("aggregate_function", aggregate_function, AGGREGATES)
    forest = Forest(xp, nodes, len(target), votes, targets, aggregate)
    transform = _named("post_transform", post_transform, TRANSFORMS)
    return Scores(xp, forest, transform, keeps_dtype=True)


def listed(
    *,
    nodes_falsenodeids: Ints = (),
    nodes_featureids: Ints = (),
    nodes_hitrates: Floats = (),  # noqa: ARG001 - a hint about speed
    nodes_hitrates_as_tensor: Array | None = None,  # noqa: ARG001 - a hint about speed
    nodes_missing_value_tracks_true: Ints = (),
    nodes_modes: Sequence[str] = (),
    nodes_nodeids: Ints = (),
    nodes_treeids: Ints = (),
    nodes_truenodeids: Ints = (),
    nodes_values: Floats = (),
    nodes_values_as_tensor: Array | None = None,
) -> tuple[TreeList, Nodes]:
    """Return the trees that attributes list node by node."""
    trees = TreeList(nodes_treeids, nodes_nodeids, nodes_modes)
    nodes = trees.nodes(
        nodes_featureids,
        _either(nodes_values, nodes_values_as_tensor),
        nodes_missing_value_tracks_true,
        nodes_truenodeids,
        nodes_falsenodeids,
    )
    return trees, nodes


@op("TreeEnsembleRegressor", since=3, like=[listed])
@op(
    "TreeEnsembleRegressor",
    like=[listed],
    without=(*TENSORS, "target_weights_as_tensor"),
    shapes=ROWS_OPERAND,
)
def tree_ensemble_regressor(
    xp: Namespace,
    *,
    aggregate_function: str = "SUM",
    base_values: Floats = (),
    base_values_as_tensor: Array | None = None,
    n_targets: int | None = None,
    post_transform: str = "NONE",
    target_ids: Ints = (),
    target_nodeids: Ints = (),
    target_treeids: Ints = (),
    target_weights: Floats = (),
    target_weights_as_tensor: Array | None = None,
    **attributes: Any,
) -> Scores:
    """Make [N, F] → [N, n_targets] float32; a vector is one row.

    Version 3 added the attributes that are tensors. onnxruntime skips the post transforms of
    a single target, but for PROBIT; they are applied here.
    """
    trees, nodes = listed(**attributes)
    weights = _either(target_weights, target_weights_as_tensor)
    votes = trees.votes(target_treeids, target_nodeids, target_ids, weights)
    targets = int(np.array(target_ids).max(initial=-1)) + 1 if n_targets is None else n_targets
    forest = Forest(xp, nodes, trees.leaves, votes, targets, aggregate_function)
    _check_whole(forest)
    base = _either(base_values, base_values_as_tensor)
    if base.size:
        check_lengths(targets, base_values=base)
    return Scores(xp, forest, post_transform, base)


@op("TreeEnsembleClassifier", since=3, like=[listed], host="all", multiple=True)
@op(
    "TreeEnsembleClassifier",
    like=[listed],
    host="all",
    multiple=True,
    without=(*TENSORS, "class_weights_as_tensor"),
    shapes=ROWS_OPERAND,
)
def tree_ensemble_classifier(
    xp: Namespace,
    *,
    base_values: Floats = (),
    base_values_as_tensor: Array | None = None,
    class_ids: Ints = (),
    class_nodeids: Ints = (),
    class_treeids: Ints = (),
    class_weights: Floats = (),
    class_weights_as_tensor: Array | None = None,
    classlabels_int64s: Ints | None = None,
    classlabels_strings: Sequence[str] | None = None,
    post_transform: str = "NONE",
    **attributes: Any,
) -> Choice:
    """Make [N, F] → labels [N] and scores [N, E] float32; a vector is one row.

    Version 3 added the attributes that are tensors. One base value for two classes is the first
    one's score's, as in onnxruntime; if all votes are for the second, it is nobody's.
    """
    labels = labels_of(classlabels_int64s, classlabels_strings)
    trees, nodes = listed(**attributes)
    weights = _either(class_weights, class_weights_as_tensor)
    votes = trees.votes(class_treeids, class_nodeids, class_ids, weights)
    forest = Forest(xp, nodes, trees.leaves, votes, len(labels), "SUM")
    _check_whole(forest)
    base = _either(base_values, base_values_as_tensor)
    if base.size and (len(labels) != 2 or base.size != 1):
        check_lengths(len(labels), base_values=base)
    voted = distinct(class_ids)
    if base.size == 1 and len(labels) == 2 and 1 in voted:
        base = np.array([0.0 if len(voted) == 1 else base[0], 0.0])
    decide = _decision(voted, len(labels), weights, base, post_transform)
    return Choice(forest, labels, decide)


def _decision(
    voted: Array, classes: int, weights: Array, base: Array, post_transform: str
) -> Callable[[Array], tuple[Array, Array]]:
    """Return how summed votes [N, E] become the winner's index [N] and the scores [N, E].

    A class that no leaf votes for never wins. Of two classes of which one has all the votes,
    the second wins by more than half if all votes are positive, else by more than zero. If the
    first has all votes and both have base values, onnxruntime has the second score 0. Sums that
    are the same in float32, as which they are returned, are a tie.
    """
    transform = transform_of(post_transform)
    if classes != 2 or len(voted) != 1:
        standing = np.arange(classes) if base.size or not len(voted) else voted
        return functools.partial(_greatest, standing, base, transform)
    return OneVoted(int(voted[0]), base, bool((weights < 0).any()), post_transform)


@cacheable
def _greatest(
    standing: Array,
    base: Array,
    transform: Callable[[Namespace, Array], Array],
    scores: Array,
) -> tuple[Array, Array]:
    """Decide for the greatest of the standing classes' scores."""
    scores = scores + base if base.size else scores
    seen = scores[:, standing].astype(np.float32)
    return standing[seen.argmax(axis=1)], transform(np, scores)


@cacheable
@dataclass(frozen=True, eq=False)
class OneVoted:
    """The decision for one of two classes, of which one has all the votes.

    Attributes:
        voted: That class.
        base: The base values.
        signed: Whether votes may be negative.
        post_transform: What is done to the scores.
    """

    voted: int
    base: Array
    signed: bool
    post_transform: str

    def __call__(self, scores: Array) -> tuple[Array, Array]:
        """Return the winner's index [N] and the scores [N, E]."""
        transform = transform_of(self.post_transform)
        scores = scores + (np.broadcast_to(self.base, 2) if self.base.size else np.zeros(2))
        score = scores[:, self.voted]
        winner = (score.astype(np.float32) > (0 if self.signed else 0.5)).astype(np.intp)
        if self.voted:
            return winner, transform(np, scores)
        if self.base.size == 2:
            return winner, transform(np, np.where([True, False], scores, 0))
        return winner, pair(np, score, self.post_transform, signed=self.signed)


def _check_whole(forest: Forest) -> None:
    """Raise ValueError if nodes lead to each other, but no root to them."""
    if forest.unreached:
        raise ValueError(f"{forest.unreached} nodes form a cycle that no root leads to")


def _named(attribute: str, number: int, names: Collection[str]) -> str:
    """Return what an attribute's number stands for."""
    if not 0 <= number < len(names):
        raise ValueError(f"{attribute} must be in [0, {len(names)}), found {number}")
    return list(names)[number]


def _either(numbers: Floats, tensor: Array | None) -> Array:
    return np.array(numbers, np.float32) if tensor is None else np.asarray(tensor)


def _splits(values: Array) -> Array:
    values = np.asarray(values)
    return values.astype(np.result_type(values.dtype, np.float32), copy=False)
