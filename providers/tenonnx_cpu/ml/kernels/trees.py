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
    i64,
    inlined,
    kernel,
    size,
    u32,
)
from tenonnx_cpu.jit.threads.parallel_for import parallel
from tenonnx_cpu.jit.vectors.views import elements, on_stack

# Walks under way at once.
LANES = 16

# Steps between two looks whether all walks have ended.
STEPS_PER_CHECK = 4


@inlined
def descend(x: Any, lines: Any, at: Any, depth: Any, forest: Any) -> None:
    """Take walks down to their leaves, which lead to themselves.

    Args:
        x: The values, flat.
        lines: Where each walk's row begins.
        at: Each walk's node, on and on.
        depth: The most steps there are.
        forest: As ``score`` has it.
    """
    interior = forest[4]
    for level in range(0, depth, STEPS_PER_CHECK):
        for _ in range(min(STEPS_PER_CHECK, depth - level)):
            step(x, lines, at, forest)
        least = interior
        if level + STEPS_PER_CHECK < depth:
            for lane in range(LANES):
                least = min(least, np.intp(at[lane]))
        if least >= interior:
            break


@inlined
def step(x: Any, lines: Any, at: Any, forest: Any) -> None:
    """Take walks to the nodes that follow."""
    nodes, missing = forest[1], forest[2]
    splits = elements(nodes.ctypes.data, nodes.size, x.dtype)
    # Unsigned: what might be negative is told apart at every index.
    one, three, four = np.uintp(1), np.uintp(3), np.uintp(4)
    if missing.size:
        for lane in range(LANES):
            node = four * np.uintp(at[lane])
            value = x[lines[lane] + np.uintp(nodes[node])]
            holds = (value <= splits[node + three]) | ((value != value) & (missing[at[lane]] != 0))
            at[lane] = nodes[node + one + np.uintp(holds)]
    else:
        for lane in range(LANES):
            node = four * np.uintp(at[lane])
            holds = x[lines[lane] + np.uintp(nodes[node])] <= splits[node + three]
            at[lane] = nodes[node + one + np.uintp(holds)]


@parallel
def score_some(arguments: Any, task: Any, worker: Any) -> None:
    """Score some rows by some trees."""
    x, forest, sums, y, grain, span = arguments
    parts, rows, count = sums.shape[0], x.shape[0], forest[0].shape[1]
    block, part = task // parts, task % parts
    first, stop = block * grain, min(rows, (block + 1) * grain)
    begin(forest, sums[part], part, first, stop)
    trees = part * span, min(count, (part + 1) * span)
    rest = stop - (stop - first) % LANES
    walk_by_tree(x, forest, sums[part], (first, rest), trees)
    walk_together(x, forest, sums[part], (rest, stop), trees)
    if parts == 1:
        finish(sums, y, first, stop)


@helper
def walk_by_tree(x: Any, forest: Any, sums: Any, rows: Any, trees: Any) -> None:
    """Take rows, a multiple of ``LANES``, down a tree before the next: it stays in the cache."""
    lists, width = forest[0], x.shape[1]
    flat = elements(x.ctypes.data, x.size, x.dtype)
    at, lines = on_stack(LANES, np.uint32), on_stack(LANES, np.uintp)
    for tree in range(trees[0], trees[1]):
        for top in range(rows[0], rows[1], LANES):
            for lane in range(LANES):
                lines[lane] = np.uintp((top + lane) * width)
                at[lane] = lists[0, tree]
            descend(flat, lines, at, lists[1, tree], forest)
            for lane in range(LANES):
                add_votes(forest, at[lane], lists[2, tree], sums[top + lane])


@helper
def walk_together(x: Any, forest: Any, sums: Any, rows: Any, trees: Any) -> None:
    """Take a few rows down several trees at once, a row down the trees in their order."""
    lists, width = forest[0], x.shape[1]
    flat = elements(x.ctypes.data, x.size, x.dtype)
    at, lines = on_stack(LANES, np.uint32), on_stack(LANES, np.uintp)
    few = rows[1] - rows[0]
    for walk in range(few * trees[0], few * trees[1], LANES):
        tree, row = walk // few, walk % few
        first, depth, count = tree, 0, min(LANES, few * trees[1] - walk)
        for lane in range(LANES):
            lines[lane] = np.uintp((rows[0] + row) * width)
            at[lane] = lists[0, tree]
            depth = max(depth, lists[1, tree])
            row += lane < count - 1
            if row == few:
                row, tree = 0, tree + 1
        descend(flat, lines, at, depth, forest)
        tree, row = first, walk % few
        for lane in range(count):
            add_votes(forest, at[lane], lists[2, tree], sums[rows[0] + row])
            row += 1
            if row == few:
                row, tree = 0, tree + 1


@inlined
def add_votes(forest: Any, at: Any, only: Any, sums: Any) -> None:
    """Add what a leaf says."""
    values, leaf = forest[3], at - np.uintp(forest[4])
    if values.shape[1] == sums.size:
        for target in range(sums.size):
            sums[target] += values[leaf, target]
    elif only >= 0:
        sums[only] += values[leaf, 0]


@helper
def begin(forest: Any, sums: Any, part: Any, first: Any, stop: Any) -> None:
    """Write what the sums begin with: the first part with the base."""
    base = forest[5]
    for row in range(first, stop):
        for target in range(base.size):
            sums[row, target] = 0.0 if part else base[target]


@helper
def finish(sums: Any, y: Any, first: Any, stop: Any) -> None:
    """Add up the parts of the sums in the first one, and write them as float32."""
    for row in range(first, stop):
        for target in range(y.shape[1]):
            for part in range(1, sums.shape[0]):
                sums[0, row, target] += sums[part, row, target]
            y[row, target] = sums[0, row, target]


def make_score(real: Type) -> Kernel:
    """Return what scores rows of a dtype."""
    word = u32 if real == f32 else i64
    forest = In(i32, 2), In(word, 1), In(i32, 1), In(f64, 2), size, In(f64, 1)

    @kernel(
        (In(real, 2), forest, Out(f64, 3), Out(f32, 2), size, size, size),
        Contract(
            plan="lists have one length; branches, leaves and targets exist; no cycle; features "
            "count from 0",
            launch="the input has the features that nodes test; parts have all trees",
        ),
    )
    def score(x: Any, forest: Any, sums: Any, y: Any, grain: Any, span: Any, threads: Any) -> None:
        """Add up what the leaves say that rows reach.

        Args:
            x: The rows.
            forest: Per tree the node it begins with, the most steps to a leaf, and the target that
                it votes for, if values have one column; per node a feature, the nodes that follow
                failure and success, and its split, which is a float, each in a word of the rows'
                size; whether NaN succeeds, or nothing; what leaves add, a column per target, or
                one; the first leaf; what the sums begin with.
            sums: Room for the sums, of each part of the trees.
            y: The sums.
            grain: Rows of a task.
            span: Trees of a part.
            threads: How many threads to use.
        """
        rows, parts = x.shape[0], sums.shape[0]
        score_some((x, forest, sums, y, grain, span), parts * -(-rows // grain), threads)
        if parts > 1:
            finish(sums, y, 0, rows)

    return score


score_f32, score_f64 = make_score(f32), make_score(f64)
