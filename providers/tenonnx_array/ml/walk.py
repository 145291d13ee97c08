"""Walking down decision trees: all rows through all trees together, a level at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tenonnx.by_name import cacheable
from tenonnx.operators import Array, Namespace

# The test of a node on its feature and its split, in TreeEnsemble-5's enumeration.
LEQ, LT, GTE, GT, EQ, NEQ, MEMBER = range(7)

# By what is asked, if equality decides otherwise than it does for `LEQ`, if the answer is the
# contrary, and if it is about a set.
STRICT, NEGATED, IN_SET = (
    np.isin(range(7), modes) for modes in ((LT, GTE), (GTE, GT), (EQ, NEQ, MEMBER))
)

# Levels between two removals of the walks that have reached a leaf.
LEVELS_PER_CULL = 4


def distinct(numbers: Array) -> Array:
    """Return different integers in order, as ``numpy.unique`` does.

    That imports ``numpy.ma``, which takes a tenth of the time until a forest's first answer.
    """
    ordered = np.sort(numbers, axis=None)
    return ordered[np.flatnonzero(np.diff(ordered, prepend=ordered[:1] - 1))]


@cacheable
@dataclass(frozen=True)
class Nodes:
    """Interior nodes of all trees, as numpy arrays of one length.

    Attributes:
        feature: The column of the input that each node tests.
        mode: Its test, ``LEQ`` to ``MEMBER``.
        split: The split value of the test; float32 or float64.
        missing: Whether NaN takes the true branch although the test fails.
        true: The node that follows when the test holds, or ``~leaf``.
        false: The node that follows when it fails, or ``~leaf``.
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

    def comparisons(self) -> Comparisons:
        """Return all tests as whether x ≤ split.

        x < s becomes x ≤ the number before s, negations swap their branches, and whether x is in
        a set becomes a search for the least value that is not less than x, and whether that is x.
        """
        strict = STRICT[self.mode]
        split = np.where(strict, _before(self.split), self.split) if strict.any() else self.split
        # x > NaN fails as x ≤ NaN does: those must not swap.
        negated = NEGATED[self.mode] & ~np.isnan(self.split)
        missing = (self.missing ^ negated) & (self.mode != NEQ)
        swapped = negated | (self.mode == NEQ)
        branches = np.stack(
            [np.where(swapped, self.true, self.false), np.where(swapped, self.false, self.true)], 1
        )
        plain = Comparisons(self.feature, split, missing, branches, 1)
        in_set = np.flatnonzero(IN_SET[self.mode])
        return plain.with_sets(in_set.tolist(), self._sets(in_set)) if in_set.size else plain

    def _sets(self, in_set: Array) -> list[Array]:
        """Return the sorted values of the nodes that test a set, one for ``EQ`` and ``NEQ``."""
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


class Comparisons(NamedTuple):
    """Nodes all of which ask whether x ≤ split.

    Attributes:
        feature: The column that each node tests.
        split: The split value.
        missing: Whether NaN succeeds.
        branches: The node, or ``~leaf``, that follows failure and success, [nodes, 2].
        steps: How many nodes there are at most for one before.
    """

    feature: Array
    split: Array
    missing: Array
    branches: Array
    steps: int

    def with_sets(self, nodes: list[int], sets: list[Array]) -> Comparisons:
        """Return these with some nodes' tests being whether x is in a set.

        Args:
            nodes: Which nodes. The first comparison of a search is in the node's place, the others
                are behind all nodes.
            sets: The sorted values of each.
        """
        feature, split = self.feature.tolist(), self.split.astype(np.float64).tolist()
        ways, steps = self.branches.tolist(), 1
        for node, values in zip(nodes, sets, strict=True):
            failure, success = ways[node]
            if not len(values):
                split[node] = np.nan
                continue
            # Where the least value that is not less than x is known, x is less than it, or it.
            found = [*range(len(ways), len(ways) + len(values)), failure]
            ways += [[success, failure]] * len(values)
            split += _before(values).tolist()
            waiting = [(node, 0, len(values))]
            while waiting:
                place, low, high = waiting.pop()
                middle = (low + high) // 2
                split[place], ways[place] = float(values[middle]), []
                for first, last in ((middle + 1, high), (low, middle)):
                    if first < last:
                        waiting.append((len(ways), first, last))
                    ways[place].append(found[first] if first == last else len(ways))
                    if first < last:
                        ways.append([])
                        split.append(0.0)
            feature += [feature[node]] * (len(ways) - len(feature))
            steps = max(steps, len(values).bit_length() + 1)
        missing = np.concatenate([self.missing, np.zeros(len(ways) - len(self.missing), bool)])
        return Comparisons(np.array(feature), np.array(split), missing, np.array(ways), steps)


def _before(values: Array) -> Array:
    """Return float64 numbers that are passed by what is less than these, and by nothing else."""
    below = np.nextafter(values.astype(np.float64), -np.inf)
    # Nothing is less than -inf, and no x passes a comparison with NaN.
    return np.where(np.isneginf(values), np.nan, below)


class Walk:
    """A walk of rows to the leaves.

    Args:
        xp: The array namespace.
        nodes: The interior nodes.
        leaves: How many leaves there are.
        depth: The most nodes above a leaf.
    """

    def __init__(self, xp: Namespace, nodes: Nodes, leaves: int, depth: int) -> None:
        feature, split, missing, branches, steps = nodes.comparisons()
        count = len(feature)
        stay = np.repeat(np.arange(count, count + leaves), 2)
        self._xp = xp
        self._depth = depth * steps
        self._interior = count
        self._root = xp.asarray(numbered(nodes.roots, count))
        self._child = xp.asarray(np.concatenate([numbered(branches, count).ravel(), stay]))
        self._feature = xp.asarray(_padded(feature, leaves))
        self._split = xp.asarray(_padded(split, leaves))
        self._missing = xp.asarray(_padded(missing, leaves)) if missing.any() else None

    def leaves(self, X: Array) -> Array:
        """Return the leaf that each tree and row of ``X`` [N, F] leads to, [T, N]."""
        xp = self._xp
        values = X.astype(xp.result_type(X.dtype, self._split.dtype), copy=False).reshape(-1)
        row = xp.tile(xp.arange(len(X)) * X.shape[1], len(self._root))
        node = xp.repeat(self._root, len(X))
        reached, walking = node, None
        for level in range(self._depth):
            node = self._step(values, row, node)
            if level % LEVELS_PER_CULL == LEVELS_PER_CULL - 1:
                alive = xp.flatnonzero(node < self._interior)
                reached, walking = self._arrive(reached, walking, node, alive)
                node, row = node[alive], row[alive]
        reached, _ = self._arrive(reached, walking, node, None)
        return (reached - self._interior).reshape(len(self._root), len(X))

    def _arrive(
        self, reached: Array, walking: Array, node: Array, alive: Array
    ) -> tuple[Array, Array]:
        """Note where the walks are; return the notes, and whose walks are still alive."""
        if walking is None:
            return node, alive
        reached[walking] = node
        return reached, None if alive is None else walking[alive]

    def _step(self, values: Array, row: Array, node: Array) -> Array:
        xp = self._xp
        x = xp.take(values, row + xp.take(self._feature, node))
        true = x <= xp.take(self._split, node)
        if self._missing is not None:
            true |= (x != x) & xp.take(self._missing, node)
        return xp.take(self._child, 2 * node + true)


def numbered(targets: Array, interior: int) -> Array:
    """Return nodes by number, leaves after the interior ones."""
    return np.where(targets < 0, interior + ~targets, targets)


def _padded(values: Array, leaves: int) -> Array:
    return np.concatenate([values, np.zeros(leaves, values.dtype)])
