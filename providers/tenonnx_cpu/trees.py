"""Ensembles of decision trees on a JIT kernel."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from tenonnx_array.ml.forest import SCORERS, Scorer, Sums
from tenonnx_cpu.buffers import F32, contiguous
from tenonnx_cpu.jit.runtime import JitKernel
from tenonnx_cpu.team import TEAM

NDArray: TypeAlias = np.ndarray[Any, Any]

SCORE = JitKernel("trees", "score")

NO_SCORES, NO_LABELS = np.empty((0, 0), np.float32), np.empty(0, np.int64)

ENOUGH = 2048
"""Walks that are worth a second thread."""


def make_scorer(sums: Sums) -> Scorer | None:
    """Returns a scorer of float32 rows, unless nodes test sets or there is but one leaf."""
    nodes = sums.nodes
    split, missing, branches, in_set = nodes.tests()
    if in_set.any() or not len(nodes) or not sums.targets:
        return None
    count, leaves = len(nodes), len(sums.values)
    table = np.zeros((count + leaves, 4), np.uint32)
    table[:count, 0] = nodes.feature
    table[:count, 1:3] = _number(branches, count)
    table[count:, 1:3] = np.arange(count, count + leaves)[:, None]
    table.view(np.float32)[:count, 3] = _rounded_down(split)
    roots = _number(nodes.roots, count)
    tracks = np.zeros(0, np.int32)
    if missing.any():
        tracks = np.concatenate([missing, np.zeros(leaves)]).astype(np.int32)
    only = np.full(len(roots), -1) if sums.only is None else sums.only
    trees = np.stack([roots, _depths(roots, table), only]).astype(np.int32)
    values = np.concatenate([np.zeros((count, sums.values.shape[1])), sums.values])
    SCORE.request()
    return Trees((trees, table, tracks, values), sums.targets, TEAM.get())


class Trees:
    """Scores rows by a forest.

    Args:
        forest: What ``jit.trees.score`` takes of it.
        targets: How many targets there are.
        threads: How many threads to use at most.
    """

    def __init__(self, forest: tuple[NDArray, ...], targets: int, threads: int) -> None:
        self._forest = forest
        self._targets = targets
        self._threads = threads
        self._walks = forest[0].shape[1]

    def __call__(self, x: NDArray) -> NDArray | None:
        """Returns the targets' scores, [N, E] float64; ``None`` of what is not float32."""
        return self._score(x, NO_SCORES, NO_LABELS)

    def choose(self, x: NDArray) -> tuple[NDArray, NDArray] | None:
        """Returns which score is the greatest, [N] int64, and the scores as float32."""
        rows = len(x)
        scores, labels = np.empty((rows, self._targets), np.float32), np.empty(rows, np.int64)
        return None if self._score(x, scores, labels) is None else (labels, scores)

    def _score(self, x: NDArray, scores: NDArray, labels: NDArray) -> NDArray | None:
        run = SCORE.run
        if run is None or x.dtype != F32 or not x.size:
            return None
        rows, team, grain = len(x), 1, 16
        y = np.empty((rows, self._targets))
        if rows * self._walks >= ENOUGH:
            team = self._threads
            grain = max(grain, -(-rows // (4 * team)))
        run(contiguous(x), *self._forest, y, scores, labels, grain, team)
        return y


def _number(targets: NDArray, interior: int) -> NDArray:
    """Numbers leaves after the interior nodes."""
    return np.where(targets < 0, interior + ~targets, targets)


def _rounded_down(split: NDArray) -> NDArray:
    """Returns float32 splits that float32 values pass as they would pass the given ones."""
    with np.errstate(over="ignore"):
        near = split.astype(np.float32)
    return np.where(near > split, np.nextafter(near, np.float32(-np.inf)), near)


def _depths(roots: NDArray, features: NDArray) -> NDArray:
    """Returns the most steps from each root to a leaf."""
    depths = np.zeros(len(roots), np.int32)
    tree, node = np.arange(len(roots)), roots
    step = 0
    while node.size:
        moving = features[node, 1] != node
        tree, node = tree[moving], node[moving]
        if not node.size:
            break
        step += 1
        depths[tree] = step
        # Branches may lead to one node, which then is one all the same.
        nodes = np.repeat(tree, 2) * len(features) + features[node, 1:3].ravel()
        tree, node = np.divmod(np.unique(nodes), len(features))
    return depths


SCORERS.append(make_scorer)
