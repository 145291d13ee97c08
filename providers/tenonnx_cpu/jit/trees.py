"""Ensembles of decision trees: walks interleaved, so that none waits for memory alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx_cpu.jit.compiling import In, Out, f32, f64, helper, i32, kernel, size, u32
from tenonnx_cpu.jit.pool import parallel

LANES = 16
"""Walks under way at once."""


@helper
def descend(
    x: Any, rows: Any, at: Any, depth: Any, features: Any, splits: Any, missing: Any
) -> None:
    """Takes walks down to their leaves, which lead to themselves.

    Args:
        x: The values, flat.
        rows: Where each walk's row begins.
        at: Each walk's node, on and on.
        depth: The most steps there are.
        features: A feature, the nodes that follow failure and success, and nothing, per node.
        splits: The same memory as floats, so that the last column is the split.
        missing: Per node whether NaN succeeds; or of no size.
    """
    for _ in range(depth):
        moved = np.uint32(0)
        # Unsigned: what might be negative is told apart at every index.
        for lane in range(LANES):
            node = at[lane]
            value = x[rows[lane] + np.uintp(features[node, 0])]
            holds = value <= splits[node, 3]
            if missing.size:
                holds |= (value != value) & (missing[node] != 0)
            after = features[node, np.uintp(1) + np.uintp(holds)]
            moved |= after ^ node
            at[lane] = after
        if not moved:
            break


@parallel
def score_rows(arguments: Any, task: Any, worker: Any) -> None:
    """Scores some rows: every tree on all of them, so that the tree stays in the cache."""
    x, roots, depths, features, splits, missing, values, only, y, grain = arguments
    width = x.shape[1]
    flat = x.reshape(x.size)
    at, rows = np.empty(LANES, np.uint32), np.empty(LANES, np.uintp)
    first, stop = task * grain, min(x.shape[0], (task + 1) * grain)
    for tree in range(roots.size):
        for top in range(first, stop, LANES):
            for lane in range(LANES):
                rows[lane] = np.uintp(min(top + lane, stop - 1) * width)
                at[lane] = roots[tree]
            descend(flat, rows, at, depths[tree], features, splits, missing)
            for lane in range(min(LANES, stop - top)):
                add_votes(values, at[lane], only[tree], y[top + lane])


@helper
def score_row(
    x: Any, roots: Any, depths: Any, features: Any, splits: Any, missing: Any, values: Any,
    only: Any, y: Any,
) -> None:  # fmt: skip
    """Scores one row, many trees at once."""
    at, rows = np.empty(LANES, np.uint32), np.zeros(LANES, np.uintp)
    for tree in range(0, roots.size, LANES):
        depth = 0
        for lane in range(LANES):
            which = min(tree + lane, roots.size - 1)
            at[lane] = roots[which]
            depth = max(depth, depths[which])
        descend(x, rows, at, depth, features, splits, missing)
        for lane in range(min(LANES, roots.size - tree)):
            add_votes(values, at[lane], only[tree + lane], y)


@helper
def add_votes(values: Any, leaf: Any, only: Any, y: Any) -> None:
    """Adds what a leaf says; values are there for leaves and, all zero, for no other node."""
    if values.shape[1] == y.size:
        for target in range(y.size):
            y[target] += values[leaf, target]
    elif only >= 0:
        y[only] += values[leaf, 0]


@kernel(
    (
        In(f32, 2), In(u32, 1), In(i32, 1), In(u32, 2), In(f32, 2), In(i32, 1), In(f64, 2),
        In(i32, 1), Out(f64, 2), size, size,
    )
)  # fmt: skip
def score(x, roots, depths, features, splits, missing, values, only, y, grain, threads):  # type: ignore[no-untyped-def] # the signature has them
    """Adds up what the leaves say that rows reach.

    Args:
        x: The rows.
        roots: The node that each tree begins with.
        depths: The most steps to a leaf, per tree.
        features: See ``descend``.
        splits: Likewise.
        missing: Likewise.
        values: What nodes add, zeros but for leaves: a column per target, or one.
        only: The target of each tree, if there is one column.
        y: The sums.
        grain: Rows of a task.
        threads: How many threads to use.
    """
    for row in range(y.shape[0]):
        for target in range(y.shape[1]):
            y[row, target] = 0
    if x.shape[0] < LANES // 2:
        for row in range(x.shape[0]):
            score_row(x[row], roots, depths, features, splits, missing, values, only, y[row])
        return
    arguments = (x, roots, depths, features, splits, missing, values, only, y, grain)
    score_rows(arguments, -(-x.shape[0] // grain), threads)
