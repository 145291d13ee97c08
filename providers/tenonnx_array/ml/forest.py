"""Ensembles of decision trees: votes at the leaves, summed up by target."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from tenonnx.operators import Array, Namespace
from tenonnx_array.ml.walk import Nodes, Walk

AGGREGATES: dict[str, tuple[float, np.ufunc]] = {
    "AVERAGE": (0.0, np.add),
    "SUM": (0.0, np.add),
    "MIN": (np.inf, np.minimum),
    "MAX": (-np.inf, np.maximum),
}
"""The result of no votes, and how two are combined, in TreeEnsemble-5's enumeration."""

BLOCK = 1 << 15
"""Rows times trees under way at once: what they need stays in the second-level cache."""


@dataclass(frozen=True)
class Sums:
    """What a forest adds up, as numpy arrays.

    Attributes:
        nodes: The interior nodes.
        values: What each leaf adds to the score, [leaves, E], or [leaves, 1] to one target.
        only: The target of each tree, -1 for none; ``None`` if trees vote for several.
        targets: How many targets there are.
    """

    nodes: Nodes
    values: Array
    only: Array | None
    targets: int


class Scorer(Protocol):
    """Adds up votes faster."""

    def __call__(self, X: Array, /) -> Array | None:
        """Returns the targets' scores [N, E] float64 of [N, F]; None of what it does not take."""

    def choose(self, X: Array, /) -> tuple[Array, Array] | None:
        """Returns which score is the greatest, [N] int64, and the scores as float32; or None."""


SCORERS: list[Callable[[Sums], Scorer | None]] = []
"""Faster ways to add up, for numpy arrays: each looks at a forest when it is made."""


class Forest:
    """Scores rows by the leaves they reach.

    Args:
        xp: The array namespace.
        nodes: The interior nodes.
        leaves: How many leaves there are.
        votes: A leaf, a target and a weight per vote; a leaf may have none, or several.
        targets: How many targets there are.
        aggregate: ``SUM``, ``AVERAGE`` (over all trees), ``MIN`` or ``MAX``.

    Raises:
        ValueError: There is no tree; a branch leads nowhere, or back to where it came from; a
            vote is for a leaf or target that does not exist.
    """

    def __init__(
        self,
        xp: Namespace,
        nodes: Nodes,
        leaves: int,
        votes: tuple[Array, Array, Array],
        targets: int,
        aggregate: str,
    ) -> None:
        if aggregate not in AGGREGATES:
            known = ", ".join(AGGREGATES)
            raise ValueError(f"aggregate_function must be one of {known}, not {aggregate!r}")
        if not nodes.roots.size:
            raise ValueError("an ensemble needs at least one tree, found none")
        leaf, target, weight = votes
        _check_range("a vote's leaf", leaf, 0, leaves)
        _check_range("a vote's target", target, 0, targets)
        self._xp = xp
        self._aggregate = aggregate
        self._targets = targets
        tree, reached, depth = _reach(nodes, leaves)
        self._walk = Walk(xp, nodes, leaves, depth)
        self._trees = len(nodes.roots)
        # Boosted trees vote for one target each: then a leaf needs one value, not E.
        only = _only_targets(tree, reached, leaf, target, targets)
        width = targets if only is None else 1
        self._groups = _groups(xp, only)
        self._empty, combine = AGGREGATES[aggregate]
        values = np.full((leaves, width), self._empty)
        combine.at(values, (leaf, target if only is None else 0), weight)
        self._values = xp.asarray(values)
        self._block = max(1, BLOCK // (self._trees * -(-width // 16)))
        self._scorers: list[Scorer] = []
        if xp is np and aggregate in ("SUM", "AVERAGE"):
            made = (make(Sums(nodes, values, only, targets)) for make in SCORERS)
            self._scorers = [scorer for scorer in made if scorer is not None]

    def scores(self, X: Array) -> Array:
        """Returns the targets' scores, [N, E] float64; zero for a target without votes.

        Args:
            X: [N, F], of any real dtype.

        Raises:
            ValueError: A node tests a feature beyond F.
        """
        xp = self._xp
        self._walk.check(X)
        for scorer in self._scorers:
            if (sums := scorer(X)) is not None:
                return sums / self._trees if self._aggregate == "AVERAGE" else sums
        total = xp.zeros((len(X), self._targets))
        for start in range(0, len(X), self._block):
            rows = slice(start, start + self._block)
            leaf = self._walk.leaves(X[rows])
            for trees, targets in self._groups:
                total[rows, targets] = self._reduce(xp.take(self._values, leaf[trees], axis=0))
        if self._empty:
            total = xp.where(total == self._empty, 0, total)
        return total / self._trees if self._aggregate == "AVERAGE" else total

    def choose(self, X: Array) -> tuple[Array, Array] | None:
        """Returns which score is the greatest, [N] int64, and the scores as float32.

        Args:
            X: [N, F].

        Returns:
            ``None`` where ``scores`` must tell: there is no scorer for this forest, or not for X.
        """
        if self._aggregate != "SUM" or X.ndim != 2:
            return None
        self._walk.check(X)
        for scorer in self._scorers:
            if (chosen := scorer.choose(X)) is not None:
                return chosen
        return None

    def _reduce(self, votes: Array) -> Array:
        if self._aggregate == "MIN":
            return votes.min(axis=0)
        return votes.max(axis=0) if self._aggregate == "MAX" else votes.sum(axis=0)


def _reach(nodes: Nodes, leaves: int) -> tuple[Array, Array, int]:
    """Returns trees and the leaves they reach, one pair per entry, and the longest way there."""
    branches = np.stack([nodes.true, nodes.false], 1)
    _check_range("a branch", branches, -leaves, len(nodes))
    _check_range("a root", nodes.roots, -leaves, len(nodes))
    span = len(nodes) + leaves
    tree, node = np.arange(len(nodes.roots)), nodes.roots
    trees, reached, depth = [], [], 0
    while True:
        end = node < 0
        trees.append(tree[end])
        reached.append(~node[end])
        tree, node = tree[~end], node[~end]
        if not node.size:
            return np.concatenate(trees), np.concatenate(reached), depth
        if depth == len(nodes):
            raise ValueError("the branches of a tree form a cycle")
        depth += 1
        # Nodes that branches share are visited once a level.
        keys = np.unique(np.repeat(tree, 2) * span + branches[node].ravel() + leaves)
        tree, node = keys // span, keys % span - leaves


def _only_targets(
    tree: Array, reached: Array, leaf: Array, target: Array, targets: int
) -> Array | None:
    """Returns the one target that each tree votes for, -1 for none; None if any has several."""
    leaves = 1 + max(reached.max(initial=-1), leaf.max(initial=-1))
    low, high = np.full(leaves, targets), np.full(leaves, -1)
    np.minimum.at(low, leaf, target)
    np.maximum.at(high, leaf, target)
    least, most = np.full(tree.max() + 1, targets), np.full(tree.max() + 1, -1)
    np.minimum.at(least, tree, low[reached])
    np.maximum.at(most, tree, high[reached])
    return None if (least < most).any() else most


def _groups(xp: Namespace, only: Array | None) -> list[tuple[Array | slice, slice]]:
    """Returns the trees, and the targets that they vote for."""
    if only is None:
        return [(slice(None), slice(None))]
    voted = np.unique(only[only >= 0]).tolist()
    return [(xp.asarray(np.flatnonzero(only == t)), slice(t, t + 1)) for t in voted]


def _check_range(what: str, index: Array, low: int, high: int) -> None:
    if index.size and not low <= index.min() <= index.max() < high:
        raise ValueError(f"{what} must be in [{low}, {high}), found {index.min()} to {index.max()}")
