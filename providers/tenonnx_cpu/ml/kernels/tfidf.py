"""Counts of n-grams in rows of tokens, by walks down a trie."""

from __future__ import annotations

from typing import Any

from tenonnx_cpu.jit.compiling import Contract, In, Out, f32, helper, i64, kernel, size
from tenonnx_cpu.jit.threads.parallel_for import parallel


@helper
def next_state(edges: Any, wanted: Any) -> Any:
    """Return where an edge leads to, 0 if there is none."""
    low, high = 0, edges.size
    while low < high:
        middle = (low + high) // 2
        if edges[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    return low + 1 if low < edges.size and edges[low] == wanted else 0


@helper
def count_from(line: Any, start: Any, trie: Any, limits: Any, y: Any) -> None:
    """Count the n-grams that begin at a place; a 1-gram has no neighbors and counts once."""
    edges, first, columns = trie
    tokens, longest, skips = limits
    state = first[line[start]]
    if state and columns[state] >= 0:
        y[columns[state]] += 1
    if state and longest > 1:
        for stride in range(1, min(skips + 2, line.size)):
            at = state
            for place in range(start + stride, min(line.size, start + longest * stride), stride):
                at = next_state(edges, at * tokens + line[place]) if line[place] >= 0 else 0
                if not at:
                    break
                if columns[at] >= 0:
                    y[columns[at]] += 1


@parallel
def count_rows(arguments: Any, task: Any, worker: Any) -> None:
    """Do some rows."""
    numbers, trie, limits, binary, scale, y, grain = arguments
    for row in range(task * grain, min(numbers.shape[0], (task + 1) * grain)):
        line, out = numbers[row], y[row]
        for i in range(out.size):
            out[i] = 0
        for start in range(line.size):
            if line[start] >= 0:
                count_from(line, start, trie, limits, out)
        if binary:
            for i in range(out.size):
                out[i] = min(out[i], 1)
        if scale.size:
            for i in range(out.size):
                out[i] *= scale[i]


@kernel(
    (In(i64, 2), (In(i64, 1),) * 3, (size,) * 3, size, In(f32, 1), Out(f32, 2), size, size),
    Contract(
        plan="the trie's states, tokens and columns exist",
        values="numbers are of tokens, or below 0: who makes them looks them up",
        captured=False,
    ),
)
def tfidf(numbers, trie, limits, binary, scale, y, grain, threads):  # type: ignore[no-untyped-def] # the signature has them
    """Write how often each n-gram is in each row.

    Args:
        numbers: Tokens by number.
        trie: Edges, and what each token leads to, as ``tenonnx_array.tfidf`` has them; the column
            of the n-gram that ends in each state, or -1.
        limits: How many tokens there are, how many an n-gram has at most, and how many lie
            between two neighbors at most.
        binary: Whether counts are 1 at most.
        scale: A factor per column, or nothing.
        y: The counts.
        grain: Rows of a task.
        threads: How many threads to use.
    """
    tasks = -(-numbers.shape[0] // grain)
    count_rows((numbers, trie, limits, binary, scale, y, grain), tasks, threads)
