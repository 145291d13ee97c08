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

ENOUGH = 2048
"""Walks that are worth a second thread."""


def make_scorer(sums: Sums) -> Scorer | None:
    """Returns a scorer of float32 rows, unless nodes test sets or there is but one leaf."""
    nodes = sums.nodes
    split, missing, branches, in_set = nodes.tests()
    if in_set.any() or not len(nodes) or not sums.targets:
        return None
    count, leaves = len(nodes), len(sums.values)
    features = np.zeros((count + leaves, 4), np.uint32)
    features[:count, 0] = nodes.feature
    features[:count, 1:3] = _number(branches, count)
    features[count:, 1:3] = np.arange(count, count + leaves)[:, None]
    splits = features.view(np.float32)
    splits[:count, 3] = _rounded_down(split)
    roots = _number(nodes.roots, count).astype(np.uint32)
    depths = _depths(roots, features)
    tracks = np.zeros(0, np.int32)
    if missing.any():
        tracks = np.concatenate([missing, np.zeros(leaves)]).astype(np.int32)
    width = sums.values.shape[1]
    values = np.concatenate([np.zeros((count, width)), sums.values])
    only = np.full(len(roots), -1) if sums.only is None else sums.only
    only = np.ascontiguousarray(only, np.int32)
    threads = TEAM.get()
    SCORE.request()

    def scorer(x: NDArray) -> NDArray | None:
        run = SCORE.run
        if run is None or x.dtype != F32 or not x.size:
            return None
        y = np.empty((len(x), sums.targets))
        team = threads if len(x) * len(roots) >= ENOUGH else 1
        grain = max(16, -(-len(x) // (4 * team)))
        run(contiguous(x), roots, depths, features, splits, tracks, values, only, y, grain, team)
        return y

    return scorer


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
        pairs = np.stack([np.repeat(tree, 2), features[node, 1:3].ravel()], 1)
        tree, node = np.unique(pairs, axis=0).T
    return depths


SCORERS.append(make_scorer)
