"""Mixtures of experts whose codes lie column after column: routed, multiplied and added up."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx_cpu.elementwise.kernels import opcodes
from tenonnx_cpu.elementwise.kernels.activate import activate
from tenonnx_cpu.jit.compiling import Contract, In, Kernel, Out, f32, helper, i64, kernel, size
from tenonnx_cpu.jit.threads.parallel_for import parallel
from tenonnx_cpu.jit.vectors import vmath
from tenonnx_cpu.quantized.kernels import BESIDE, INTERLEAVED
from tenonnx_cpu.quantized.kernels.gemv_dot import make_multiply, order_row, sum_blocks
from tenonnx_cpu.quantized.kernels.matrix import WEIGHTS, Weights
from tenonnx_cpu.reduce.kernels import FLOATING
from tenonnx_cpu.reduce.kernels.topk import select

# Codes that a task should have.
TASK_CODES = 1 << 15

# Tasks that a thread should have.
TASKS = 8

ROOM = (
    Out(f32, 2), Out(i64, 2), Out(i64, 1), Out(i64, 2), Out(f32, 2), Out(f32, 2), Out(f32, 2),
    Out(f32, 2), Out(f32, 2), Out(f32, 2), Out(f32, 2),
)  # fmt: skip
"""The scratch arrays of ``q_mixture``. A *place* is one of a token's experts; sorted by expert.

* ``(tokens, k)``: shares, and the experts' numbers; for each place, its rank among the sorted;
* ``(places, 3)``: groups of up to 4 places of one expert: it, the first and how many;
* ``(places + 3, width)`` and ``(places + 3, blocks)``: the first layer's inputs and their sums,
  of which there are none without zero points;
* ``(places, columns)``: what it computes; two again for the second layer, and what that computes;
* ``(threads, 32)``.
"""


@helper
def share_out(scores: Any, normalize: Any, values: Any, experts: Any) -> None:
    """Find a token's experts, and what each counts: the softmax over all, or over those found."""
    bits, keys = scores.view(np.int32), values.view(np.int32)
    select(bits, keys, experts, 4, FLOATING, True, np.int32(0x7FFFFFFF))
    highest = values[0]
    for score in scores:
        highest = score if score != score else highest
    total = np.float32(0)
    if not normalize:
        for score in scores:
            total += vmath.exp(score - highest)
    for i in range(values.size):
        values[i] = vmath.exp(values[i] - highest)
        total += values[i] if normalize else np.float32(0)
    for i in range(values.size):
        values[i] /= total


@helper
def sort_places(experts: Any, count: Any, ranks: Any, groups: Any) -> Any:
    """Sort places by expert; return how many groups there are."""
    k = experts.shape[1]
    found, rank = 0, 0
    for expert in range(count):
        first = rank
        for place in range(ranks.size):
            if experts[place // k, place % k] == expert:
                ranks[place] = rank
                rank += 1
        while first < rank:
            groups[found, 0], groups[found, 1] = expert, first
            groups[found, 2] = min(4, rank - first)
            first += 4
            found += 1
    return found


@helper
def gated(gate: Any, value: Any, alpha: Any, beta: Any, limit: Any, after: Any) -> Any:
    """Return SwiGLU's gate times its value."""
    value = limit if value > limit else value
    value = -limit if value < -limit else value
    if not after:
        gate = limit if gate > limit else gate
    active = gate * vmath.sigmoid(gate * alpha)
    if after:
        active = limit if active > limit else active
    return active * (value + beta)


@helper
def gate_row(row: Any, kind: Any, alpha: Any, beta: Any, limit: Any, after: Any, out: Any) -> None:
    """Write what SwiGLU makes of a row, which is twice as long."""
    if kind == INTERLEAVED:
        # Unsigned: LLVM makes vectors of what numba does not take for indices from the end.
        one, two = np.uintp(1), np.uintp(2)
        for i in range(out.size):
            at = two * np.uintp(i)
            out[i] = gated(row[at], row[at + one], alpha, beta, limit, after)
    else:
        gates, values = row[: out.size], row[out.size :]
        for i in range(out.size):
            out[i] = gated(gates[i], values[i], alpha, beta, limit, after)


@helper
def columns_of_group(columns: Any, depth: Any, groups: Any, threads: Any) -> Any:
    """Return how many columns of a group a task has."""
    tasks = min(-(-TASKS * threads // groups), max(1, columns * depth // TASK_CODES))
    return -(-columns // (4 * tasks)) * 4


def make_q_mixture(bits: int) -> Kernel:
    """Return the mixture of experts whose codes have so many bits."""
    each = 8 // bits
    multiply_columns = make_multiply(bits, "reals")

    @parallel
    def take_rows(arguments: Any, task: Any, worker: Any) -> None:
        """Put a token's row where each of its experts reads it."""
        x, block, ranks, ordered, sums = arguments
        k = ranks.size // x.shape[0]
        for place in range(task * k, (task + 1) * k):
            rank = ranks[place]
            order_row(x[task], each, ordered[rank])
            sum_blocks(x[task], block, sums[rank])

    @parallel
    def compute_layer(arguments: Any, task: Any, worker: Any) -> None:
        """Multiply some columns of a group, and add the bias."""
        ordered, sums, weights, bias, c, groups, span, scratch = arguments
        columns = c.shape[1]
        across = -(-columns // span)
        group = groups[task // across]
        first, top, rows = group[0] * columns, group[1], group[2]
        left = task % across * span
        right = min(columns, left + span)
        multiply_columns(
            rows, 4 if rows == 3 else rows, top, (ordered, ordered, sums, ordered), weights, first,
            c, weights.block, left, right, scratch[worker],
        )  # fmt: skip
        if bias.size:
            for row in range(top, top + rows):
                own, line = bias[first + left : first + right], c[row, left:right]
                for i in range(line.size):
                    line[i] += own[i]

    @helper
    def multiply(
        ordered: Any, sums: Any, weights: Any, bias: Any, c: Any, groups: Any, count: Any,
        scratch: Any, threads: Any,
    ) -> None:  # fmt: skip
        """Compute a layer for ``count`` groups."""
        columns = c.shape[1]
        span = columns_of_group(columns, ordered.shape[1], count, threads)
        layer = ordered, sums, weights, bias, c, groups, span, scratch
        compute_layer(layer, count * -(-columns // span), threads)

    @parallel
    def activate_row(arguments: Any, task: Any, worker: Any) -> None:
        """Make the second layer's input of what the first has computed for a place."""
        hidden, kind, numbers, block, ordered, sums = arguments
        alpha, beta, limit, after = numbers
        row = hidden[task]
        if kind in (INTERLEAVED, BESIDE):
            made, row = ordered[task], hidden[task, : ordered.shape[1]]
            gate_row(hidden[task], kind, alpha, beta, limit, after, made)
            for i in range(row.size):
                row[i] = made[i]
        elif kind != opcodes.NONE:
            activate(kind, row, row, alpha, beta)
        order_row(row, each, ordered[task])
        sum_blocks(row, block, sums[task])

    @parallel
    def add_up(arguments: Any, task: Any, worker: Any) -> None:
        """Write a token's sum over its experts."""
        out, shares, ranks, y = arguments
        k = shares.shape[1]
        for i in range(y.shape[1]):
            y[task, i] = np.float32(0)
        for n in range(k):
            share, row = shares[task, n], out[ranks[task * k + n]]
            for i in range(y.shape[1]):
                y[task, i] += share * row[i]

    @kernel(
        (
            In(f32, 2), In(f32, 2), size, WEIGHTS, In(f32, 1), WEIGHTS, In(f32, 1), size,
            (f32, f32, f32, size), Out(f32, 2), ROOM, size,
        ),
        Contract(
            plan="codes, scales, zero points and biases are of all experts and fit one another",
            launch="rows have the first layer's depth, and scores for every expert",
        ),
    )  # fmt: skip
    def product(
        x: Any, scores: Any, normalize: Any, first: Any, first_bias: Any, second: Any,
        second_bias: Any, kind: Any, numbers: Any, y: Any, room: Any, threads: Any,
    ) -> None:  # fmt: skip
        """Compute each token's sum over its experts.

        Args:
            x: ``(tokens, width)``.
            scores: ``(tokens, experts)``.
            normalize: Whether shares are of those that are chosen.
            first: See ``WEIGHTS``: the experts' matrices side by side.
            first_bias: One for every column, or empty.
            second: The same of the second layer.
            second_bias: Its biases, or empty.
            kind: What is between the layers: an activation without parameters of ``opcodes``,
                ``INTERLEAVED`` or ``BESIDE``.
            numbers: SwiGLU's alpha, beta and limit, and whether this is for the activated gate.
            y: ``(tokens, width)``.
            room: See ``ROOM``.
            threads: How many to use.
        """
        shares, experts, ranks, groups, rows, sums, hidden, inner, inner_sums, out, scratch = room
        one, two = Weights(*first), Weights(*second)
        for token in range(x.shape[0]):
            share_out(scores[token], normalize, shares[token], experts[token])
        count = sort_places(experts, scores.shape[1], ranks, groups)
        take_rows((x, one.block, ranks, rows, sums), x.shape[0], 1)
        multiply(rows, sums, one, first_bias, hidden, groups, count, scratch, threads)
        activate_row((hidden, kind, numbers, two.block, inner, inner_sums), ranks.size, threads)
        multiply(inner, inner_sums, two, second_bias, out, groups, count, scratch, threads)
        add_up((out, shares, ranks, y), x.shape[0], 1)

    return product


q_mixture_4, q_mixture_8 = (make_q_mixture(bits) for bits in (4, 8))
