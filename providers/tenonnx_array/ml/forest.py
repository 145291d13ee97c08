"""Ensembles of decision trees: votes at the leaves, summed up by target."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from tenonnx.by_name import cacheable
from tenonnx.operators import Array, Namespace
from tenonnx.process import interruption
from tenonnx_array.ml.walk import IN_SET, Nodes, Walk, distinct

# The result of no votes, and how two are combined, in TreeEnsemble-5's enumeration.
AGGREGATES: dict[str, tuple[float, np.ufunc]] = {
    "AVERAGE": (0.0, np.add),
    "SUM": (0.0, np.add),
    "MIN": (np.inf, np.minimum),
    "MAX": (-np.inf, np.maximum),
}

# Features and targets have smaller numbers: kernels count them in 32 bits.
MAX_INDEX = 1 << 31

# Rows times trees that are computed at once: their data stay in the second-level cache.
MAX_WALKS = 1 << 15


@cacheable
class Forest:
    """Scores rows by the leaves they reach.

    Args:
        xp: The array namespace.
        nodes: The interior nodes.
        leaves: How many leaves there are.
        votes: A leaf, a target and a weight per vote; a leaf may have none, or several.
        targets: How many targets there are.
        aggregate: ``SUM``, ``AVERAGE`` (over all trees), ``MIN`` or ``MAX``.

    Attributes:
        nodes: The interior nodes.
        targets: How many targets there are.
        aggregate: How votes are combined.
        values: The summand of each leaf, [leaves, E], or [leaves, 1] for one target.
        only: The target of each tree, -1 for none; ``None`` if trees vote for several.
        depths: The most nodes above a leaf of each tree.
        unreached: How many nodes no tree has.
        faster: Computes the scores, or returns ``None`` for what it does not take.

    Raises:
        ValueError: There is no tree; a node's mode is unknown, or its feature negative; a branch
            leads nowhere, or back to where it came from; a vote is for a leaf or target that does
            not exist; there is no target.
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
        if not 0 < targets < MAX_INDEX:
            raise ValueError(f"an ensemble must have 1 to {MAX_INDEX - 1} targets, found {targets}")
        leaf, target, weight = votes
        check_range("a node's mode", nodes.mode, 0, len(IN_SET))
        check_range("a node's feature id", nodes.feature, 0, MAX_INDEX)
        check_range("a vote's leaf", leaf, 0, leaves)
        check_range("a vote's target", target, 0, targets)
        self._xp = xp
        self.nodes = nodes
        self.targets = targets
        self.aggregate = aggregate
        self.faster: Callable[[Array], Array | None] | None = None
        tree, reached, self.depths, self.unreached = _reach(nodes, leaves)
        # Boosted trees vote for one target each: then a leaf needs one value, not E.
        self.only = _only_targets(tree, reached, leaf, target, targets)
        shape = leaves, targets if self.only is None else 1
        self._empty, combine = AGGREGATES[aggregate]
        place = leaf * targets + target if self.only is None else leaf
        if combine is np.add:
            self.values = np.bincount(place, weight, shape[0] * shape[1]).reshape(shape)
        else:
            self.values = np.full(shape, self._empty)
            combine.at(self.values.reshape(-1), place, weight)
        self._features = int(nodes.feature.max(initial=-1)) + 1

    @functools.cached_property
    def _walk(self) -> Walk:
        return Walk(self._xp, self.nodes, len(self.values), self.depths.max())

    @functools.cached_property
    def _votes(self) -> Array:
        return self._xp.asarray(self.values)

    @functools.cached_property
    def _groups(self) -> list[tuple[Array | slice, slice]]:
        return _groups(self._xp, self.only)

    def check(self, X: Array) -> None:
        """Raise ValueError if a node tests a feature that ``X`` [N, F] does not have."""
        if X.shape[1] < self._features:
            raise ValueError(
                f"the trees test feature {self._features - 1}, X has {X.shape[1]} features"
            )

    def scores(self, X: Array) -> Array:
        """Return the targets' scores, [N, E] float64; zero for a target without votes.

        Args:
            X: [N, F], of any real dtype.

        Raises:
            ValueError: A node tests a feature beyond F.
        """
        self.check(X)
        if self.faster is not None and (sums := self.faster(X)) is not None:
            return sums
        xp, trees = self._xp, len(self.nodes.roots)
        block = max(1, MAX_WALKS // (trees * -(-self.values.shape[1] // 16)))
        total = xp.zeros((len(X), self.targets))
        for start in range(0, len(X), block):
            interruption.check()
            rows = slice(start, start + block)
            leaf = self._walk.leaves(X[rows])
            for voting, targets in self._groups:
                total[rows, targets] = self._reduce(xp.take(self._votes, leaf[voting], axis=0))
        if self._empty:
            total = xp.where(total == self._empty, 0, total)
        return total / trees if self.aggregate == "AVERAGE" else total

    def _reduce(self, votes: Array) -> Array:
        if self.aggregate == "MIN":
            return votes.min(axis=0)
        return votes.max(axis=0) if self.aggregate == "MAX" else votes.sum(axis=0)


def _reach(nodes: Nodes, leaves: int) -> tuple[Array, Array, Array, int]:
    """Return trees and the leaves they reach, one pair per entry.

    Then each tree's depth, and how many nodes no tree has.
    """
    branches = np.stack([nodes.true, nodes.false], 1)
    check_range("a branch", branches, -leaves, len(nodes))
    check_range("a root", nodes.roots, -leaves, len(nodes))
    span = len(nodes) + leaves
    is_shared = np.bincount(branches.ravel() + leaves).max(initial=0) > 1
    tree, node = np.arange(len(nodes.roots)), nodes.roots
    depths = np.zeros(len(nodes.roots), np.intp)
    trees, reached, depth = [], [], 0
    seen = np.zeros(len(nodes), bool)
    while True:
        end = node < 0
        trees.append(tree[end])
        reached.append(~node[end])
        tree, node = tree[~end], node[~end]
        if not node.size:
            unreached = int(np.count_nonzero(~seen))
            return np.concatenate(trees), np.concatenate(reached), depths, unreached
        seen[node] = True
        if depth == len(nodes):
            raise ValueError("the branches of a tree form a cycle")
        depth += 1
        depths[tree] = depth
        tree, node = np.repeat(tree, 2), branches[node].ravel()
        if is_shared:  # a node is visited once a level, by however many branches
            keys = distinct(tree * span + node + leaves)
            tree, node = keys // span, keys % span - leaves


def _only_targets(
    tree: Array, reached: Array, leaf: Array, target: Array, targets: int
) -> Array | None:
    """Return the one target that each tree votes for, -1 for none; None if any has several."""
    leaves = 1 + max(reached.max(initial=-1), leaf.max(initial=-1))
    low, high = np.full(leaves, targets), np.full(leaves, -1)
    np.minimum.at(low, leaf, target)
    np.maximum.at(high, leaf, target)
    least, most = np.full(tree.max() + 1, targets), np.full(tree.max() + 1, -1)
    np.minimum.at(least, tree, low[reached])
    np.maximum.at(most, tree, high[reached])
    return None if (least < most).any() else most


def _groups(xp: Namespace, only: Array | None) -> list[tuple[Array | slice, slice]]:
    """Return the trees, and the targets that they vote for."""
    if only is None:
        return [(slice(None), slice(None))]
    voted = distinct(only[only >= 0]).tolist()
    return [(xp.asarray(np.flatnonzero(only == t)), slice(t, t + 1)) for t in voted]


def check_range(what: str, index: Array, low: int, high: int) -> None:
    """Raise ValueError if a number is not in [low, high)."""
    if index.size and not low <= index.min() <= index.max() < high:
        raise ValueError(f"{what} must be in [{low}, {high}), found {index.min()} to {index.max()}")
