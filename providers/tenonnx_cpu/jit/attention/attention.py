"""Scaled dot-product attention over blocks of queries and keys, without all scores at a time.

The softmax goes from block to block as in "Online normalizer calculation for softmax"
(arXiv:1805.02867): sums so far are rescaled when a greater score turns up.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx_cpu.attention import sizes as attention_sizes
from tenonnx_cpu.attention.sizes import FEW, KEYS, QUERIES
from tenonnx_cpu.jit.compiling import In, Out, f32, helper, i32, i64, inlined, kernel, size
from tenonnx_cpu.jit.products.block import multiply_block
from tenonnx_cpu.jit.products.pack import make_pack
from tenonnx_cpu.jit.products.stream_dots import make_dot_lines
from tenonnx_cpu.jit.products.stream_lines import make_sum_lines
from tenonnx_cpu.jit.products.tile import ADD, COLUMNS, LANES, ZERO
from tenonnx_cpu.jit.threads.pool import parallel
from tenonnx_cpu.jit.vectors import vmath
from tenonnx_cpu.jit.vectors.memory import load_float, store_float
from tenonnx_cpu.jit.vectors.reductions import exponentials_at, scores_at, times_at
from tenonnx_cpu.jit.vectors.views import floats

F = np.float32
pack = make_pack("f32")
dots, sum_lines = make_dot_lines("f32"), make_sum_lines("f32")
few_line = helper(attention_sizes.few_line)


@helper
def cap_row(scores: Any, scale: Any, softcap: Any) -> None:
    """Turns products into scores that a cap bounds."""
    steepness = scale / softcap
    for i in range(scores.size):
        scores[i] = softcap * vmath.tanh(scores[i] * steepness)


@inlined
def score_row(scores: Any, count: Any, mask: Any, scale: Any, softcap: Any) -> Any:
    """Turns products at an address into scores; returns the greatest.

    ``mask`` is the address of what is added, or 0; a cap of 0 is none.
    """
    if softcap:
        cap_row(floats(scores, count), scale, softcap)
        scale = F(1)
    return scores_at(scores, count, scale, mask)


@helper
def weigh_nothing(scores: Any) -> Any:
    """Makes scores that are minus infinity weights of 0; returns 0, or NaN if one is that."""
    missing = F(0)
    for i in range(scores.size):
        missing += F(0) if scores[i] == -np.inf else F(np.nan)
        scores[i] = F(0)
    return missing


@inlined
def weigh(scores: Any, count: Any, top: Any) -> Any:
    """Makes scores at an address weights, by the greatest score; returns their sum."""
    if top == -np.inf:
        return weigh_nothing(floats(scores, count))
    return exponentials_at(scores, scores, count, top)


@inlined
def weigh_row(scores: Any, count: Any, top: Any, sums: Any, width: Any, state: Any) -> None:
    """Makes a row of scores weights, and rescales the row's sums to the greatest score so far.

    Args:
        scores: Address of those of one block of keys.
        count: How many they are.
        top: The greatest of them.
        sums: Address of what earlier blocks added up to.
        width: How many sums there are.
        state: Address of the greatest score and the sum of weights so far.
    """
    before, total = load_float(state), load_float(state + 4)
    if before != -np.inf:
        if top > before:
            factor = vmath.exp(before - top)
            times_at(sums, sums, width, factor)
            total *= factor
        else:
            top = before
    store_float(total + weigh(scores, count, top), state + 4)
    store_float(top, state)


@inlined
def finish_row(sums: Any, total: Any, y: Any, width: Any, nothing: Any) -> None:
    """Divides by the sum of weights; ``nothing`` is the result where no key is seen."""
    if total == F(0):
        for i in range(width):
            store_float(nothing, y + 4 * i)
    else:
        times_at(sums, y, width, F(1) / total)


@helper
def seen_keys(k: Any, lengths: Any, batch: Any, queries: Any, before: Any) -> Any:
    """Returns how many keys of an entry count, and how many are before its first query's own."""
    if not lengths.size:
        return k.shape[2], before
    return lengths[batch], before if before < 0 else lengths[batch] - queries


@helper
def places_of(q: Any, k: Any, v: Any, batch: Any, head: Any) -> Any:
    """Returns the addresses of a head's queries, keys and values."""
    group = head // (q.shape[1] // k.shape[1])
    return (
        q.ctypes.data + batch * q.strides[0] + head * q.strides[1],
        k.ctypes.data + batch * k.strides[0] + group * k.strides[1],
        v.ctypes.data + batch * v.strides[0] + group * v.strides[1],
    )


@helper
def mask_at(mask: Any, batch: Any, head: Any, query: Any, key: Any) -> Any:
    """Returns the address of what is added to a score, or 0 without a mask."""
    if not mask.size:
        return 0
    row = mask.ctypes.data + batch * mask.strides[0] + head * mask.strides[1]
    return row + query * mask.strides[2] + 4 * key


@parallel
def attend_blocks(arguments: Any, task: Any, worker: Any) -> None:
    """Attends with some queries of one head."""
    q, k, v, mask, rule, lengths, y, rows, memory, share = arguments
    scale, softcap, given, nothing = rule
    queries, heads, width, value_width = q.shape[2], q.shape[1], q.shape[3], v.shape[3]
    blocks = -(-queries // rows)
    item, top = task // blocks, task % blocks * rows
    batch, head = item // heads, item % heads
    bottom = min(queries, top + rows)
    own = memory.ctypes.data + 4 * share * worker
    query, keys, values = places_of(q, k, v, batch, head)
    everything, before = seen_keys(k, lengths, batch, queries, given)
    count = bottom - top
    wide = -(-value_width // COLUMNS) * COLUMNS
    high = min(everything, KEYS)
    line = -(-high // COLUMNS) * COLUMNS
    scores, sums = own, own + 4 * QUERIES * line
    states = sums + 4 * QUERIES * wide
    packed = states + 8 * QUERIES
    edge = packed + 4 * KEYS * max(width, wide)
    for row in range(count):
        state = floats(states + 8 * row, 2)
        state[0], state[1] = F(-np.inf), F(0)
        out = floats(sums + 4 * wide * row, wide)
        for i in range(wide):
            out[i] = F(0)
    limit = everything if before < 0 else min(everything, before + bottom)
    for first in range(0, limit, KEYS):
        span = min(KEYS, limit - first)
        for column in range(0, span, COLUMNS):
            source = keys + (first + column) * k.strides[2]
            target = packed + 4 * width * column
            pack(source, 4, k.strides[2], width, min(COLUMNS, span - column), target)
        multiply_block(
            count, -(-span // LANES) * LANES, width, query + top * q.strides[2],
            q.strides[2], 4, packed, 4 * COLUMNS, 4 * COLUMNS * width, scores, 4 * line, ZERO, edge,
        )  # fmt: skip
        for row in range(count):
            own_scores, own_sums = scores + 4 * line * row, sums + 4 * wide * row
            seen = span if before < 0 else max(0, min(span, before + top + row + 1 - first))
            place = mask_at(mask, batch, head, top + row, first)
            most = score_row(own_scores, seen, place, scale, softcap)
            weigh_row(own_scores, seen, most, own_sums, value_width, states + 8 * row)
            for i in range(seen, span):
                store_float(F(0), own_scores + 4 * i)
        right, right_row, right_panel = values + first * v.strides[2], v.strides[2], 4 * COLUMNS
        if wide != value_width:
            for column in range(0, value_width, COLUMNS):
                target = packed + 4 * span * column
                columns = min(COLUMNS, value_width - column)
                pack(right + 4 * column, v.strides[2], 4, span, columns, target)
            right, right_row, right_panel = packed, 4 * COLUMNS, 4 * COLUMNS * span
        multiply_block(
            count, wide, span, scores, 4 * line, 4, right, right_row, right_panel,
            sums, 4 * wide, ADD, edge,
        )  # fmt: skip
    for row in range(count):
        total, place = (
            load_float(states + 8 * row + 4),
            (batch * queries + top + row) * heads + head,
        )
        out = y.ctypes.data + 4 * value_width * place
        finish_row(sums + 4 * wide * row, total, out, value_width, nothing)


@helper
def heads_together(q: Any, k: Any, threads: Any) -> Any:
    """Returns how many heads of a group one task attends with, reading their keys once."""
    if q.shape[2] > 1:
        return 1
    ratio = q.shape[1] // k.shape[1]
    together = 8
    while together > 1 and (ratio % together or q.shape[0] * q.shape[1] < together * threads):
        together //= 2
    return together


@parallel
def attend_few(arguments: Any, task: Any, worker: Any) -> None:
    """Attends with a few queries of a head, or one each of some heads, reading keys in place."""
    q, k, v, mask, rule, lengths, y, together, memory, share = arguments
    scale, softcap, given, nothing = rule
    queries, heads, width, value_width = q.shape[2], q.shape[1], q.shape[3], v.shape[3]
    first = task * together
    batch, head = first // heads, first % heads
    first_query, keys, values = places_of(q, k, v, batch, head)
    everything, before = seen_keys(k, lengths, batch, queries, given)
    everything = everything if before < 0 else min(everything, before + queries)
    rows = queries * together
    line = 4 * few_line(k.shape[2])
    scores = memory.ctypes.data + 4 * share * worker
    sums, sum_line = scores + FEW * line, 4 * few_line(value_width)
    dots(
        rows, everything, width, first_query, q.strides[1] if together > 1 else q.strides[2],
        keys, k.strides[2], scores, line,
    )  # fmt: skip
    for row in range(rows):
        query, own = row % queries, head + row // queries
        seen = everything if before < 0 else min(everything, before + query + 1)
        place = mask_at(mask, batch, own, query, 0)
        most = score_row(scores + row * line, seen, place, scale, softcap)
        total = weigh(scores + row * line, seen, most)
        store_float(total, sums + FEW * sum_line + 4 * row)
        for i in range(seen, everything):
            store_float(F(0), scores + row * line + 4 * i)
    sum_lines(
        rows, value_width, 0, everything, v.shape[2] - 1, scores, line, 4,
        values, v.strides[2], sums, sum_line,
    )  # fmt: skip
    for row in range(rows):
        place = (batch * queries + row % queries) * heads + head + row // queries
        total = load_float(sums + FEW * sum_line + 4 * row)
        out = y.ctypes.data + 4 * value_width * place
        finish_row(sums + row * sum_line, total, out, value_width, nothing)


@kernel(
    (
        In(f32, 4, "A"), In(f32, 4, "A"), In(f32, 4, "A"), In(f32, 4, "A"), (f32, f32, size, f32),
        In(i64, 1), Out(f32, 4), size, Out(f32, 1), size, Out(i32, 1), size,
    )
)  # fmt: skip
def attend(q, k, v, mask, rule, lengths, y, rows, memory, share, refusal, threads):  # type: ignore[no-untyped-def] # the signature has them
    """Computes ``softmax(cap(scale * q @ k') + mask) @ v`` for every head.

    Args:
        q: Queries, ``(batch, heads, queries, size)``; as all arrays, adjacent in the last axis.
        k: Keys, ``(batch, groups, keys, size)``; the heads of a group share them.
        v: Values, ``(batch, groups, keys, value size)``.
        mask: What scores are added to, of their shape; or of no size.
        rule: ``scale``, ``softcap``, ``before`` and ``nothing`` of ``Rule``.
        lengths: How many keys of each entry count, ``(batch,)``, or of no size; ``before``, if it
            is not -1, is then what they leave before the queries.
        y: The result, ``(batch, queries, heads, value size)``.
        rows: Queries of a task, ``QUERIES`` at most.
        memory: ``share`` floats for every thread.
        share: See ``attention_sizes.workspace``.
        refusal: Where 1 is written if there are not so many keys, or fewer than queries, else 0.
        threads: How many threads to use.
    """
    _, _, before, _ = rule
    refusal[0] = 0
    least = 1 if before < 0 else q.shape[2]
    for entry in range(lengths.size):
        if not least <= lengths[entry] <= k.shape[2]:
            refusal[0] = 1
            return
    pairs = q.shape[0] * q.shape[1]
    if q.shape[2] <= FEW:
        together = heads_together(q, k, threads)
        few = (q, k, v, mask, rule, lengths, y, together, memory, share)
        attend_few(few, pairs // together, threads)
        return
    arguments = (q, k, v, mask, rule, lengths, y, rows, memory, share)
    attend_blocks(arguments, pairs * -(-q.shape[2] // rows), threads)
