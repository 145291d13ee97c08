"""Trees as TreeEnsembleRegressor and TreeEnsembleClassifier list them, node by node."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tenonnx.operators import Array
from tenonnx_array.ml.walk import EQ, GT, GTE, LEQ, LT, NEQ, Nodes

Ints = Sequence[int]

MODES = {
    "BRANCH_LEQ": LEQ,
    "BRANCH_LT": LT,
    "BRANCH_GTE": GTE,
    "BRANCH_GT": GT,
    "BRANCH_EQ": EQ,
    "BRANCH_NEQ": NEQ,
    "LEAF": -1,
}


class TreeList:
    """Nodes and leaves in one list, each named by a tree and a number.

    Args:
        treeids: Each row's tree.
        nodeids: Each row's number in its tree.
        modes: Each row's test, or LEAF.

    Raises:
        ValueError: A mode is unknown.
    """

    def __init__(self, treeids: Ints, nodeids: Ints, modes: Sequence[str]) -> None:
        if unknown := set(modes) - MODES.keys():
            raise ValueError(f"nodes_modes must be among {', '.join(MODES)}, found {unknown}")
        self._mode = np.array([*map(MODES.__getitem__, modes)], np.intp)
        self._inner = self._mode >= 0
        self.leaves = int(np.count_nonzero(~self._inner))
        # Interior nodes count up from 0, leaves down from -1.
        self._place = np.where(
            self._inner, np.cumsum(self._inner) - 1, ~(np.cumsum(~self._inner) - 1)
        )
        self._tree = np.array(treeids, np.int64)
        self._span = max(nodeids, default=0) + 1
        self._keys = self._tree * self._span + np.array(nodeids, np.int64)
        self._order = np.argsort(self._keys)

    def nodes(self, features: Ints, values: Array, missing: Ints, true: Ints, false: Ints) -> Nodes:
        """Returns the interior nodes; trees begin at the rows that no branch leads to.

        Raises:
            ValueError: A branch leads to a row that is not there; a tree has no root, or two.
        """
        inner, tree = self._inner, self._tree[self._inner]
        succeeding = self._find(tree, np.array(true, np.int64)[inner])
        failing = self._find(tree, np.array(false, np.int64)[inner])
        root = np.ones(len(inner), bool)
        root[succeeding] = root[failing] = False
        if not np.array_equal(np.sort(self._tree[root]), np.unique(self._tree)):
            raise ValueError("every tree needs one node that no branch leads to, its root")
        return Nodes(
            feature=np.array(features, np.intp)[inner],
            mode=self._mode[inner],
            split=values[inner],
            missing=flags(missing, len(inner))[inner],
            true=self._place[succeeding],
            false=self._place[failing],
            members=values[:0],
            roots=self._place[root],
        )

    def votes(
        self, trees: Ints, nodes: Ints, targets: Ints, weights: Array
    ) -> tuple[Array, Array, Array]:
        """Returns the leaf, target and weight of each vote; votes at interior nodes are idle."""
        place = self._place[self._find(np.array(trees, np.int64), np.array(nodes, np.int64))]
        cast = place < 0
        return ~place[cast], np.array(targets, np.intp)[cast], weights[cast].astype(np.float64)

    def _find(self, trees: Array, nodes: Array) -> Array:
        keys = trees * self._span + nodes
        last = max(len(self._keys) - 1, 0)
        found = self._order[np.minimum(np.searchsorted(self._keys[self._order], keys), last)]
        lost = np.flatnonzero((self._keys[found] != keys) | (nodes >= self._span))
        if lost.size:
            tree, node = trees[lost[0]], nodes[lost[0]]
            raise ValueError(f"node {node} of tree {tree} is referred to, but not listed")
        return found


def flags(values: Ints, count: int) -> Array:
    return np.array(values, bool) if values else np.zeros(count, bool)
