"""Trees as TreeEnsembleRegressor and TreeEnsembleClassifier list them, node by node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tenonnx.formats.long_lists import LongList
from tenonnx.operators import Array
from tenonnx_array.ml.walk import EQ, GT, GTE, LEQ, LT, NEQ, Nodes, distinct

Ints = Sequence[int]

NODE_MODES = {
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
        ValueError: A mode is unknown; the lists are not of one length.
    """

    def __init__(self, treeids: Ints, nodeids: Ints, modes: Sequence[str]) -> None:
        check_lengths(len(modes), nodes_treeids=treeids, nodes_nodeids=nodeids)
        self._mode = _numbered(modes)
        self._inner = self._mode >= 0
        self.leaves = int(np.count_nonzero(~self._inner))
        # Interior nodes count up from 0, leaves down from -1.
        self._place = np.where(
            self._inner, np.cumsum(self._inner) - 1, ~(np.cumsum(~self._inner) - 1)
        )
        self._tree, node = np.array(treeids, np.int64), np.array(nodeids, np.int64)
        self._rows = _in_order(self._tree, node) or Scattered(self._tree, node)

    def nodes(self, features: Ints, values: Array, missing: Ints, true: Ints, false: Ints) -> Nodes:
        """Return the interior nodes; trees begin at the rows that no branch leads to.

        Raises:
            ValueError: A branch leads to a row that is not there; a tree has no root, or two; the
                lists are not of one length.
        """
        check_lengths(
            len(self._inner),
            nodes_featureids=features,
            nodes_values=values,
            nodes_truenodeids=true,
            nodes_falsenodeids=false,
        )
        inner, tree = self._inner, self._tree[self._inner]
        succeeding = self._find(tree, np.array(true, np.int64)[inner])
        failing = self._find(tree, np.array(false, np.int64)[inner])
        root = np.ones(len(inner), bool)
        root[succeeding] = root[failing] = False
        if not np.array_equal(np.sort(self._tree[root]), self._rows.trees):
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
        """Return the leaf, target and weight of each vote; votes at interior nodes are idle.

        Raises:
            ValueError: A vote is at a row that is not there; the lists are not of one length.
        """
        check_lengths(len(targets), treeids=trees, nodeids=nodes, weights=weights)
        place = self._place[self._find(np.array(trees, np.int64), np.array(nodes, np.int64))]
        cast = place < 0
        return ~place[cast], np.array(targets, np.intp)[cast], weights[cast].astype(np.float64)

    def _find(self, trees: Array, nodes: Array) -> Array:
        found = self._rows.find(trees, nodes)
        if found.min(initial=0) < 0:
            lost = found.argmin()
            tree, node = trees[lost], nodes[lost]
            raise ValueError(f"node {node} of tree {tree} is referred to, but not listed")
        return found


class Adjacent(NamedTuple):
    """Rows in which tree follows tree, with the nodes 0, 1, 2 and so on.

    Attributes:
        trees: The trees' ids, ascending.
        starts: The row of each tree's first node, and how many rows there are.
    """

    trees: Array
    starts: Array

    def find(self, trees: Array, nodes: Array) -> Array:
        """Return the rows of nodes of trees, -1 for those that are not listed."""
        tree = _places(self.trees, trees)
        row = self.starts[tree] + nodes
        return np.where((tree < 0) | (nodes < 0) | (row >= self.starts[tree + 1]), -1, row)


def _in_order(tree: Array, node: Array) -> Adjacent | None:
    """Return rows as adjacent ones, as most exporters write them, if they are."""
    ends = np.flatnonzero(tree[1:] != tree[:-1]) + 1
    starts = np.concatenate([[0], ends, [len(tree)]])
    trees = tree[starts[:-1]] if len(tree) else tree
    if (trees[1:] <= trees[:-1]).any():
        return None
    count_up = np.arange(len(tree)) - np.repeat(starts[:-1], np.diff(starts))
    return Adjacent(trees, starts) if np.array_equal(node, count_up) else None


class Scattered:
    """Rows of any order.

    Attributes:
        trees: The trees' ids, ascending.
    """

    def __init__(self, tree: Array, node: Array) -> None:
        self.trees, self._nodes = distinct(tree), distinct(node)
        keys = self._key(tree, node)
        self._order = np.argsort(keys)
        self._keys = keys[self._order]

    def find(self, trees: Array, nodes: Array) -> Array:
        """Return the rows of nodes of trees, -1 for those that are not listed."""
        keys = self._key(trees, nodes)
        place = _places(self._keys, keys)
        return np.where(place < 0, -1, self._order[place])

    def _key(self, trees: Array, nodes: Array) -> Array:
        """Return a number for each tree and node, -1 for ids that are not listed.

        Ids are any int64: their places among those that are listed cannot overflow.
        """
        tree, node = _places(self.trees, trees), _places(self._nodes, nodes)
        return np.where((tree < 0) | (node < 0), -1, tree * len(self._nodes) + node)


def _numbered(modes: Sequence[str]) -> Array:
    """Return modes as numbers."""
    names = modes.names if isinstance(modes, LongList) else modes
    if unknown := set(names) - NODE_MODES.keys():
        raise ValueError(f"nodes_modes must be among {', '.join(NODE_MODES)}, found {unknown}")
    numbers = np.array([*map(NODE_MODES.__getitem__, names)], np.intp)
    return numbers.take(modes.array) if isinstance(modes, LongList) else numbers


def _places(known: Array, ids: Array) -> Array:
    """Return where ids are among known ones, sorted; -1 for those that are not."""
    if not known.size:
        return np.full(len(ids), -1)
    first, last = known[0].item(), known[-1].item()
    if last - first == len(known) - 1:  # they count up
        return np.where((ids < first) | (ids > last), -1, ids - first)
    place = np.minimum(np.searchsorted(known, ids), len(known) - 1)
    return np.where(known[place] == ids, place, -1)


def check_lengths(count: int, **lists: Sequence[object] | Array) -> None:
    """Raise ValueError if a list, named as the attribute is, has not so many elements."""
    for name, values in lists.items():
        shape = values.shape if isinstance(values, np.ndarray) else (len(values),)
        if shape != (count,):
            found = " by ".join(map(str, shape)) or "one number"
            raise ValueError(f"{name} must have {count} elements, found {found}")


def flags(values: Ints, count: int) -> Array:
    """Return flags as an array; none set if there are none.

    Raises:
        ValueError: There are some, but not so many.
    """
    if not values:
        return np.zeros(count, bool)
    check_lengths(count, nodes_missing_value_tracks_true=values)
    return np.array(values, bool)
