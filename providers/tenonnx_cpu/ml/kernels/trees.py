"""Ensembles of decision trees: walks interleaved, so that none waits for memory alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx_cpu.jit.compiling import (
    Contract,
    In,
    Kernel,
    Out,
    Type,
    f32,
    f64,
    helper,
    i32,
    kernel,
    size,
    u32,
)
from tenonnx_cpu.jit.threads.parallel_for import parallel
from tenonnx_cpu.jit.vectors.views import elements, on_stack

LANES = 16
"""Walks under way at once."""


@helper
def descend(x: Any, rows: Any, at: Any, depth: Any, forest: Any) -> None:
    """Takes walks down to their leaves, which lead to themselves.

    Args:
        x: The values, flat.
        rows: Where each walk's row begins.
        at: Each walk's node, on and on.
        depth: The most steps there are.
        forest: As ``score`` has it.
    """
    nodes, splits, missing = forest[1], forest[2], forest[3]
    for _ in range(depth):
        moved = np.uint32(0)
        # Unsigned: what might be negative is told apart at every index.
        for lane in range(LANES):
            node = at[lane]
            value = x[rows[lane] + np.uintp(nodes[node, 0])]
            holds = value <= splits[node]
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
    x, forest, sums, y, grain = arguments
    trees, values = forest[0], forest[4]
    width = x.shape[1]
    flat = elements(x.ctypes.data, x.size, x.dtype)
    at, rows = on_stack(LANES, np.uint32), on_stack(LANES, np.uintp)
    first, stop = task * grain, min(x.shape[0], (task + 1) * grain)
    begin(forest, sums, first, stop)
    for tree in range(trees.shape[1]):
        for top in range(first, stop, LANES):
            for lane in range(LANES):
                rows[lane] = np.uintp(min(top + lane, stop - 1) * width)
                at[lane] = trees[0, tree]
            descend(flat, rows, at, trees[1, tree], forest)
            for lane in range(min(LANES, stop - top)):
                add_votes(values, at[lane], trees[2, tree], sums[top + lane])
    finish(sums, y, first, stop)


@helper
def score_row(x: Any, forest: Any, sums: Any) -> None:
    """Scores one row, many trees at once."""
    trees, values = forest[0], forest[4]
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
        descend(x, rows, at, depth, forest)
        for lane in range(min(LANES, count - tree)):
            add_votes(values, at[lane], trees[2, tree + lane], sums)


@helper
def add_votes(values: Any, leaf: Any, only: Any, sums: Any) -> None:
    """Adds what a leaf says; values are there for leaves and, all zero, for no other node."""
    if values.shape[1] == sums.size:
        for target in range(sums.size):
            sums[target] += values[leaf, target]
    elif only >= 0:
        sums[only] += values[leaf, 0]


@helper
def begin(forest: Any, sums: Any, first: Any, stop: Any) -> None:
    """Writes what the sums begin with."""
    base = forest[5]
    for row in range(first, stop):
        for target in range(base.size):
            sums[row, target] = base[target]


@helper
def finish(sums: Any, y: Any, first: Any, stop: Any) -> None:
    """Writes the sums as float32."""
    for row in range(first, stop):
        for target in range(sums.shape[1]):
            y[row, target] = sums[row, target]


def make_score(real: Type) -> Kernel:
    """Returns what scores rows of a dtype."""
    forest = In(i32, 2), In(u32, 2), In(real, 1, "A"), In(i32, 1), In(f64, 2), In(f64, 1)

    @kernel(
        (In(real, 2), forest, Out(f64, 2), Out(f32, 2), size, size),
        Contract(
            plan="lists have one length; branches, leaves and targets exist; no cycle; features "
            "count from 0",
            launch="the input has the features that nodes test",
        ),
    )
    def score(x: Any, forest: Any, sums: Any, y: Any, grain: Any, threads: Any) -> None:
        """Adds up what the leaves say that rows reach.

        Args:
            x: The rows.
            forest: Per tree the node it begins with, the most steps to a leaf, and the target that
                it votes for, if values have one column; per node a feature and the nodes that
                follow failure and success; its split; whether NaN succeeds, or nothing; what nodes
                add, zeros but for leaves, a column per target, or one; what the sums begin with.
            sums: Room for the sums.
            y: The sums.
            grain: Rows of a task.
            threads: How many threads to use.
        """
        rows = x.shape[0]
        if rows >= LANES // 2:
            score_rows((x, forest, sums, y, grain), -(-rows // grain), threads)
            return
        begin(forest, sums, 0, rows)
        for row in range(rows):
            score_row(x[row], forest, sums[row])
        finish(sums, y, 0, rows)

    return score


score_f32, score_f64 = make_score(f32), make_score(f64)
