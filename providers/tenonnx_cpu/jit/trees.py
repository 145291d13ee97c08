"""Ensembles of decision trees: walks interleaved, so that none waits for memory alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx_cpu.jit.compiling import In, Out, f32, f64, helper, i32, i64, kernel, size, u32
from tenonnx_cpu.jit.threads.pool import parallel
from tenonnx_cpu.jit.vectors.views import floats, on_stack
from tenonnx_cpu.jit.vectors.vmath import float_of

LANES = 16
"""Walks under way at once."""


@helper
def descend(x: Any, rows: Any, at: Any, depth: Any, nodes: Any, missing: Any) -> None:
    """Takes walks down to their leaves, which lead to themselves.

    Args:
        x: The values, flat.
        rows: Where each walk's row begins.
        at: Each walk's node, on and on.
        depth: The most steps there are.
        nodes: A feature, the nodes that follow failure and success, and the split's bits, each.
        missing: Per node whether NaN succeeds; or of no size.
    """
    for _ in range(depth):
        moved = np.uint32(0)
        # Unsigned: what might be negative is told apart at every index.
        for lane in range(LANES):
            node = at[lane]
            value = x[rows[lane] + np.uintp(nodes[node, 0])]
            holds = value <= float_of(np.int32(nodes[node, 3]))
            if missing.size:
                holds |= (value != value) & (missing[node] != 0)
            after = nodes[node, np.uintp(1) + np.uintp(holds)]
            moved |= after ^ node
            at[lane] = after
        if not moved:
            break


@parallel
def score_rows(arguments: Any, task: Any, worker: Any) -> None:
    """Scores some rows: every tree on all of them, so that the tree stays in the cache."""
    x, trees, nodes, missing, values, y, scores, labels, grain = arguments
    width = x.shape[1]
    flat = floats(x.ctypes.data, x.size)
    at, rows = on_stack(LANES, np.uint32), on_stack(LANES, np.uintp)
    first, stop = task * grain, min(x.shape[0], (task + 1) * grain)
    for tree in range(trees.shape[1]):
        for top in range(first, stop, LANES):
            for lane in range(LANES):
                rows[lane] = np.uintp(min(top + lane, stop - 1) * width)
                at[lane] = trees[0, tree]
            descend(flat, rows, at, trees[1, tree], nodes, missing)
            for lane in range(min(LANES, stop - top)):
                add_votes(values, at[lane], trees[2, tree], y[top + lane])
    choose(y, scores, labels, first, stop)


@helper
def score_row(x: Any, trees: Any, nodes: Any, missing: Any, values: Any, y: Any) -> None:
    """Scores one row, many trees at once."""
    at, rows = on_stack(LANES, np.uint32), on_stack(LANES, np.uintp)
    count = trees.shape[1]
    for lane in range(LANES):
        rows[lane] = 0
    for tree in range(0, count, LANES):
        depth = 0
        for lane in range(LANES):
            which = min(tree + lane, count - 1)
            at[lane] = trees[0, which]
            depth = max(depth, trees[1, which])
        descend(x, rows, at, depth, nodes, missing)
        for lane in range(min(LANES, count - tree)):
            add_votes(values, at[lane], trees[2, tree + lane], y)


@helper
def add_votes(values: Any, leaf: Any, only: Any, y: Any) -> None:
    """Adds what a leaf says; values are there for leaves and, all zero, for no other node."""
    if values.shape[1] == y.size:
        for target in range(y.size):
            y[target] += values[leaf, target]
    elif only >= 0:
        y[only] += values[leaf, 0]


@helper
def choose(y: Any, scores: Any, labels: Any, first: Any, stop: Any) -> None:
    """Writes which target of each row is the greatest, and all of them; if they are wanted."""
    if not labels.size:
        return
    for row in range(first, stop):
        best = 0
        for target in range(y.shape[1]):
            scores[row, target] = y[row, target]
            if y[row, target] > y[row, best]:
                best = target
        labels[row] = best


@kernel(
    (
        In(f32, 2), In(i32, 2), In(u32, 2), In(i32, 1), In(f64, 2), Out(f64, 2), Out(f32, 2),
        Out(i64, 1), size, size,
    )
)  # fmt: skip
def score(x, trees, nodes, missing, values, y, scores, labels, grain, threads):  # type: ignore[no-untyped-def] # the signature has them
    """Adds up what the leaves say that rows reach.

    Args:
        x: The rows.
        trees: Per tree the node it begins with, the most steps to a leaf, and the target that it
            votes for, if values have one column.
        nodes: See ``descend``.
        missing: Likewise.
        values: What nodes add, zeros but for leaves: a column per target, or one.
        y: The sums.
        scores: The same as float32, if they are wanted.
        labels: The greatest sum's target in each row; of no size if neither is wanted.
        grain: Rows of a task.
        threads: How many threads to use.
    """
    for row in range(y.shape[0]):
        for target in range(y.shape[1]):
            y[row, target] = 0
    if x.shape[0] < LANES // 2:
        for row in range(x.shape[0]):
            score_row(x[row], trees, nodes, missing, values, y[row])
        choose(y, scores, labels, 0, x.shape[0])
        return
    arguments = (x, trees, nodes, missing, values, y, scores, labels, grain)
    score_rows(arguments, -(-x.shape[0] // grain), threads)
