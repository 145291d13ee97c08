"""Walking down decision trees: all rows through all trees together, a level at a time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tenonnx.operators import Array, Namespace

LEQ, LT, GTE, GT, EQ, NEQ, MEMBER = range(7)
"""What a node asks of its feature and its split, in TreeEnsemble-5's enumeration."""

STRICT, NEGATED, IN_SET = (
    np.isin(range(7), modes) for modes in ((LT, GTE), (GTE, GT), (EQ, NEQ, MEMBER))
)
"""By what is asked, if equality decides otherwise than it does for ``LEQ``, if the answer is the
contrary, and if it is about a set."""

CULL = 4
"""Levels between two removals of the walks that have reached a leaf."""


@dataclass(frozen=True)
class Nodes:
    """Interior nodes of all trees, as numpy arrays of one length.

    Attributes:
        feature: The column of the input that each node tests.
        mode: Its test, ``LEQ`` to ``MEMBER``.
        split: What the test compares with; float32 or float64.
        missing: Whether NaN takes the true branch although the test fails.
        true: The node that follows when the test holds, or ``~leaf``.
        false: Likewise when it fails.
        members: The sets of the ``MEMBER`` nodes in their order, each ended by a NaN.
        roots: The node, or ``~leaf``, where each tree begins; any length.
    """

    feature: Array
    mode: Array
    split: Array
    missing: Array
    true: Array
    false: Array
    members: Array
    roots: Array

    def __len__(self) -> int:
        return len(self.feature)

    def tests(self) -> tuple[Array, Array, Array, Array]:
        """Returns every test as a less-or-equal, or as a membership where the sets say so.

        x < s becomes x ≤ the number before s, and the negations swap their branches.

        Returns:
            split; missing; branches [nodes, 2], those of failure and success; in_set.
        """
        strict = STRICT[self.mode]
        split = self.split
        if strict.any():
            below = np.nextafter(split.astype(np.float64), -np.inf)
            # Nothing is less than -inf, and no x passes a comparison with NaN.
            below = np.where(np.isneginf(split), np.nan, below)
            split = np.where(strict, below, split)
        # x > NaN fails as x ≤ NaN does: those must not swap.
        negated = NEGATED[self.mode] & ~np.isnan(self.split)
        missing = (self.missing ^ negated) & (self.mode != NEQ)
        swapped = negated | (self.mode == NEQ)
        branches = np.stack(
            [np.where(swapped, self.true, self.false), np.where(swapped, self.false, self.true)], 1
        )
        return split, missing, branches, IN_SET[self.mode]

    def sets(self, in_set: Array) -> list[Array]:
        """Returns the sorted values of the nodes that test a set, one for ``EQ`` and ``NEQ``."""
        ends = np.flatnonzero(np.isnan(self.members))
        members = [values[~np.isnan(values)] for values in np.split(self.members, ends + 1)]
        wanted = np.count_nonzero(self.mode == MEMBER)
        if wanted > len(members):
            raise ValueError(f"{wanted} nodes test a set, membership_values has {len(members)}")
        given = iter(members)
        return [
            np.sort(next(given)) if mode == MEMBER else split
            for mode, split in zip(self.mode[in_set], self.split[in_set, None], strict=True)
        ]


class Walk:
    """Takes rows to the leaves.

    Args:
        xp: The array namespace.
        nodes: The interior nodes.
        leaves: How many leaves there are.
        depth: The most nodes above a leaf.
    """

    def __init__(self, xp: Namespace, nodes: Nodes, leaves: int, depth: int) -> None:
        count = len(nodes)
        split, missing, branches, in_set = nodes.tests()
        stay = np.repeat(np.arange(count, count + leaves), 2)
        self._xp = xp
        self._depth = depth
        self._interior = count
        self._root = xp.asarray(_number(nodes.roots, count))
        self._child = xp.asarray(np.concatenate([_number(branches, count).ravel(), stay]))
        self._feature = xp.asarray(_padded(nodes.feature, leaves))
        self._split = xp.asarray(_padded(split, leaves))
        self._missing = xp.asarray(_padded(missing, leaves)) if missing.any() else None
        self._sets = Sets(xp, in_set, nodes.sets(in_set), leaves) if in_set.any() else None

    def leaves(self, X: Array) -> Array:
        """Returns the leaf that each tree and row of ``X`` [N, F] leads to, [T, N]."""
        xp = self._xp
        values = X.astype(xp.result_type(X.dtype, self._split.dtype), copy=False).reshape(-1)
        row = xp.tile(xp.arange(len(X)) * X.shape[1], len(self._root))
        node = xp.repeat(self._root, len(X))
        reached, walking = node, None
        for level in range(self._depth):
            node = self._step(values, row, node)
            if level % CULL == CULL - 1:
                alive = xp.flatnonzero(node < self._interior)
                reached, walking = self._arrive(reached, walking, node, alive)
                node, row = node[alive], row[alive]
        reached, _ = self._arrive(reached, walking, node, None)
        return (reached - self._interior).reshape(len(self._root), len(X))

    def _arrive(
        self, reached: Array, walking: Array, node: Array, alive: Array
    ) -> tuple[Array, Array]:
        """Notes where the walks are; returns the notes, and whose walks are still alive."""
        if walking is None:
            return node, alive
        reached[walking] = node
        return reached, None if alive is None else walking[alive]

    def _step(self, values: Array, row: Array, node: Array) -> Array:
        xp = self._xp
        x = xp.take(values, row + xp.take(self._feature, node))
        true = x <= xp.take(self._split, node)
        if self._sets is not None:
            true = self._sets.replace(true, x, node)
        if self._missing is not None:
            true |= (x != x) & xp.take(self._missing, node)
        return xp.take(self._child, 2 * node + true)


class Sets:
    """Tests membership, by bisection, for the nodes that ask for it.

    Args:
        xp: The array namespace.
        in_set: Which interior nodes ask, [nodes].
        sets: The sorted values of each of those, in order.
        leaves: How many leaves there are.
    """

    def __init__(self, xp: Namespace, in_set: Array, sets: list[Array], leaves: int) -> None:
        self._xp = xp
        sizes = np.zeros(len(in_set), np.intp)
        sizes[in_set] = [len(values) for values in sets]
        stop = np.cumsum(sizes)
        self._start = xp.asarray(stop - sizes)
        self._stop = xp.asarray(stop)
        self._asked = xp.asarray(_padded(in_set, leaves))
        # A last NaN, equal to nothing, for the bisections that end behind the values.
        self._values = xp.asarray(np.concatenate([*sets, [np.nan]]).astype(sets[0].dtype))
        self._steps = int(sizes.max()).bit_length()

    def replace(self, true: Array, x: Array, node: Array) -> Array:
        """Returns ``true`` with the answers of the nodes that test a set."""
        xp = self._xp
        which = xp.flatnonzero(xp.take(self._asked, node))
        x, node = x[which], node[which]
        low, stop = self._start[node], self._stop[node]
        high = stop
        for _ in range(self._steps):
            middle = (low + high) // 2
            right = (low < high) & (self._values[middle] < x)
            low, high = xp.where(right, middle + 1, low), xp.where(right, high, middle)
        true[which] = (low < stop) & (self._values[low] == x)
        return true


def _number(targets: Array, interior: int) -> Array:
    """Numbers leaves after the interior nodes."""
    return np.where(targets < 0, interior + ~targets, targets)


def _padded(values: Array, leaves: int) -> Array:
    return np.concatenate([values, np.zeros(leaves, values.dtype)])
