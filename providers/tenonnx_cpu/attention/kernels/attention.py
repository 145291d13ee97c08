"""Scaled dot-product attention over blocks of queries and keys, without all scores at a time."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx_cpu.attention import kernels as sizes
from tenonnx_cpu.attention.kernels import KEYS, MAX_UNPACKED_QUERIES, QUERIES
from tenonnx_cpu.attention.kernels.blocks import add_values, begin_rows, multiply_keys, weigh_keys
from tenonnx_cpu.attention.kernels.narrow_blocks import (
    LEAST_WIDTH,
    Tiles,
    add_values_in_tiles,
    begin_attention,
    multiply_keys_in_tiles,
    weigh_keys_in_tiles,
)
from tenonnx_cpu.attention.kernels.scores import (
    F,
    finish_row,
    hide,
    mask_at,
    score_row,
    seen_by,
    weigh,
)
from tenonnx_cpu.jit.compiling import (
    Contract,
    In,
    Out,
    f32,
    helper,
    i32,
    i64,
    kernel,
    size,
    u8,
)
from tenonnx_cpu.jit.threads.parallel_for import parallel
from tenonnx_cpu.jit.vectors import vmath
from tenonnx_cpu.jit.vectors.amx import end_tiles
from tenonnx_cpu.jit.vectors.bfloat16 import NARROWS
from tenonnx_cpu.jit.vectors.lanes import LANES
from tenonnx_cpu.jit.vectors.memory import load_float, store_float
from tenonnx_cpu.jit.vectors.views import floats
from tenonnx_cpu.matmul.kernels.gemv_axpy import make_sum_lines
from tenonnx_cpu.matmul.kernels.gemv_dot import make_dot_lines
from tenonnx_cpu.matmul.kernels.tile import COLUMNS

dots, sum_lines = make_dot_lines("f32"), make_sum_lines("f32")
few_line = helper(sizes.few_line)

# Multiplications that are worth a second thread.
ENOUGH = 1 << 14

# Elements of keys that one thread joins before others have started.
SERIAL = 1 << 16


@helper
def places_of(q: Any, k: Any, v: Any, batch: Any, head: Any) -> Any:
    """Return the addresses of a head's queries, keys and values."""
    group = head // (q.shape[1] // k.shape[1])
    return (
        q.ctypes.data + batch * q.strides[0] + head * q.strides[1],
        k.ctypes.data + batch * k.strides[0] + group * k.strides[1],
        v.ctypes.data + batch * v.strides[0] + group * v.strides[1],
    )


@helper
def attend_keys(block: Any, operands: Any, sizes: Any, states: Any, room: Any, tiles: Any) -> None:
    """Attend with a task's queries to a block of keys, in tiles if they have been begun.

    Args:
        block: The first six arguments of ``weigh_keys``.
        operands: Queries, keys and values: an address and the bytes from row to row each.
        sizes: Floats of a query and of a value; scores and sums, as ``weigh_keys`` takes them.
        states: As of ``begin_rows``.
        room: As of ``multiply_keys``.
        tiles: What ``begin_attention`` returned, or of no rows.
    """
    place, count, first, span, scoring, seen = block
    (queries, keys, values), (width, value_width, scores, line, sums, wide) = operands, sizes
    if tiles.tall:
        multiply_keys_in_tiles(tiles, keys, span, width, scores, line)
        weigh_keys_in_tiles(
            place, count, first, span, scoring, seen, scores, line, sums, wide, value_width, states
        )
        add_values_in_tiles(tiles, values, span, value_width, scores, line, sums, wide)
        return
    multiply_keys(queries, keys, count, span, width, scores, line, room)
    weigh_keys(
        place, count, first, span, scoring, seen, scores, line, sums, wide, value_width, states
    )
    add_values(values, count, span, value_width, scores, line, sums, wide, room)


@parallel
def attend_blocks(arguments: Any, task: Any, worker: Any) -> None:
    """Attend with some queries of one head."""
    q, k, v, mask, sinks, rule, spans, y, rows, memory, share = arguments
    scale, softcap, left, right, nothing, fill, narrows = rule
    scoring = scale, softcap, left, right, fill
    queries, heads, width, value_width = q.shape[2], q.shape[1], q.shape[3], v.shape[3]
    blocks = -(-queries // rows)
    item, top = task // blocks, task % blocks * rows
    batch, head = item // heads, item % heads
    bottom = min(queries, top + rows)
    query, keys, values = places_of(q, k, v, batch, head)
    count = bottom - top
    wide = -(-value_width // LANES) * LANES
    line = -(-min(spans[batch, 0], KEYS) // COLUMNS) * COLUMNS
    scores = memory.ctypes.data + 4 * share * worker
    sums = scores + 4 * QUERIES * line
    states = sums + 4 * QUERIES * wide
    packed = states + 8 * QUERIES
    room = packed, packed + 4 * KEYS * max(width, -(-value_width // COLUMNS) * COLUMNS)
    begin_rows(count, sums, wide, states, sinks, head)
    own_queries = query + top * q.strides[2], q.strides[2]
    tiles = Tiles(0, 0, 0, 0, 0)
    if NARROWS and narrows and width >= LEAST_WIDTH:
        tiles = begin_attention(own_queries, count, width, *room)
    start, _ = seen_by(spans, batch, top, left, right)
    _, limit = seen_by(spans, batch, bottom - 1, left, right)
    for first in range(start, limit, KEYS):
        span = min(KEYS, limit - first)
        own_keys = keys + first * k.strides[2], k.strides[2]
        own_values = values + first * v.strides[2], v.strides[2]
        attend_keys(
            ((batch, head, top), count, first, span, scoring, (mask, spans)),
            (own_queries, own_keys, own_values), (width, value_width, scores, line, sums, wide),
            states, room, tiles,
        )  # fmt: skip
    if tiles.tall:
        end_tiles()
    for row in range(count):
        total = load_float(states + 8 * row + 4)
        out = y.ctypes.data + 4 * value_width * ((batch * queries + top + row) * heads + head)
        finish_row(sums + 4 * wide * row, total, out, value_width, nothing)


@helper
def heads_together(q: Any, k: Any, threads: Any) -> Any:
    """Return how many heads of a group one task attends with, reading their keys once."""
    if q.shape[2] > 1:
        return 1
    ratio = q.shape[1] // k.shape[1]
    together = 8
    while together > 1 and (ratio % together or q.shape[0] * q.shape[1] < together * threads):
        together //= 2
    return together


@parallel
def attend_few(arguments: Any, task: Any, worker: Any) -> None:
    """Attend with a few queries of a head, or one each of some heads, reading keys in place."""
    q, k, v, mask, sinks, rule, spans, y, together, memory, share = arguments
    scale, softcap, left, right, nothing, fill, _ = rule
    queries, heads, width, value_width = q.shape[2], q.shape[1], q.shape[3], v.shape[3]
    first = task * together
    batch, head = first // heads, first % heads
    query, keys, values = places_of(q, k, v, batch, head)
    start, _ = seen_by(spans, batch, 0, left, right)
    _, stop = seen_by(spans, batch, queries - 1, left, right)
    rows, count = queries * together, stop - start
    line = 4 * few_line(k.shape[2])
    scores = memory.ctypes.data + 4 * share * worker
    sums, sum_line = scores + MAX_UNPACKED_QUERIES * line, 4 * few_line(value_width)
    dots(
        rows, count, width, query, q.strides[1] if together > 1 else q.strides[2],
        keys + start * k.strides[2], k.strides[2], scores, line,
    )  # fmt: skip
    for row in range(rows):
        place, own = row % queries, head + row // queries
        begin, end = seen_by(spans, batch, place, left, right)
        seen = scores + row * line + 4 * (begin - start)
        added = mask_at(mask, batch, own, place, begin)
        most = score_row(seen, end - begin, added, fill, scale, softcap)
        total = F(0)
        if sinks.size:
            most = max(most, sinks[own])
            total = vmath.exp(sinks[own] - most)
        total += weigh(seen, end - begin, most)
        store_float(total, sums + MAX_UNPACKED_QUERIES * sum_line + 4 * row)
        hide(scores + row * line, begin - start, end - start, count)
    sum_lines(
        rows, value_width, 0, count, v.shape[2] - 1 - start, scores, line, 4,
        values + start * v.strides[2], v.strides[2], sums, sum_line,
    )  # fmt: skip
    for row in range(rows):
        place = (batch * queries + row % queries) * heads + head + row // queries
        total = load_float(sums + MAX_UNPACKED_QUERIES * sum_line + 4 * row)
        out = y.ctypes.data + 4 * value_width * place
        finish_row(sums + row * sum_line, total, out, value_width, nothing)


@helper
def copy_rows(source: Any, stride: Any, rows: Any, width: Any, target: Any) -> None:
    """Copy rows of floats to where they are adjacent."""
    if stride == 4 * width:
        rows, width = min(rows, 1), rows * width
    for row in range(rows):
        x, y = floats(source + row * stride, width), floats(target + 4 * row * width, width)
        for i in range(width):
            y[i] = x[i]


@parallel
def join_past(arguments: Any, task: Any, worker: Any) -> None:
    """Write one head's keys or values: those of a past, and new ones behind them."""
    pasts, news, caches = arguments
    past, new, cache = pasts[task % 2], news[task % 2], caches[task % 2]
    batch, head = task // 2 // cache.shape[1], task // 2 % cache.shape[1]
    width, held = cache.shape[3], past.shape[2]
    target = cache.ctypes.data + batch * cache.strides[0] + head * cache.strides[1]
    source = past.ctypes.data + batch * past.strides[0] + head * past.strides[1]
    copy_rows(source, past.strides[2], held, width, target)
    source = new.ctypes.data + batch * new.strides[0] + head * new.strides[1]
    copy_rows(source, new.strides[2], new.shape[2], width, target + 4 * held * width)


@helper
def hide_unseen(seen: Any, added: Any) -> None:
    """Write what is added to scores for a mask that says which keys are seen."""
    for i in range(seen.size):
        added[i] = F(0) if seen[i] else F(-np.inf)


OPERANDS = (In(f32, 4, "A"), In(f32, 4, "A"), In(f32, 4, "A"))
MASK, SINKS = In(f32, 4, "A"), In(f32, 1)
RULE = (f32, f32, size, size, f32, f32, size)
SPANS = Out(i64, 2)


@helper
def attend_heads(
    operands: Any, mask: Any, sinks: Any, rule: Any, spans: Any, y: Any, work: Any
) -> None:
    """Compute ``softmax(cap(scale * q @ k') + mask) @ v`` for every head.

    Args:
        operands: Queries, ``(batch, heads, queries, size)``, keys, ``(batch, groups, keys, size)``,
            and values, ``(batch, groups, keys, value size)``; adjacent in the last axis. The heads
            of a group share keys and values.
        mask: What scores are added to, of their shape; or of no size.
        sinks: A score of each head more, which gives no value; or of no size.
        rule: ``scale``, ``softcap``, ``left``, ``right``, ``nothing``, ``fill`` and ``narrows`` of
            ``Rule``.
        spans: How many keys of each entry count, and which is its first query's own.
        y: The result, ``(batch, queries, heads, value size)``. It may be the queries' memory.
        work: ``rows``, queries of a task, ``QUERIES`` at most; ``memory``, ``share`` floats for
            every thread (``sizes.workspace``); ``share``; ``threads``, how many to use at most.
    """
    q, k, v = operands
    rows, memory, share, threads = work
    pairs, most = q.shape[0] * q.shape[1], 0
    for entry in range(q.shape[0]):
        most = max(most, spans[entry, 0])
    if pairs * q.shape[2] * most * q.shape[3] < ENOUGH:
        threads = 1
    if q.shape[2] <= MAX_UNPACKED_QUERIES:
        together = heads_together(q, k, threads)
        few = (q, k, v, mask, sinks, rule, spans, y, together, memory, share)
        attend_few(few, pairs // together, threads)
    else:
        arguments = (q, k, v, mask, sinks, rule, spans, y, rows, memory, share)
        attend_blocks(arguments, pairs * -(-q.shape[2] // rows), threads)


WORK = (size, Out(f32, 1), size, size)


PARTS = (In(f32, 4, "A"), In(f32, 4, "A"))
JOINED = (Out(f32, 4), Out(f32, 4))


@kernel(
    (
        OPERANDS, PARTS, PARTS, JOINED, In(u8, 1), Out(f32, 1), MASK, SINKS, RULE, size,
        In(i64, 1), Out(f32, 4), SPANS, WORK, Out(i32, 1),
    ),
    Contract(
        launch="heads divide, sizes agree, a mask is broadcast to the scores",
        values="key lengths are at most the keys there are",
    ),
)  # fmt: skip
def attend(  # type: ignore[no-untyped-def] # the signature has them
    operands, pasts, news, joined, seen, added, mask, sinks, rule, before, lengths, y, spans, work,
    refusal,
):  # fmt: skip
    """Attend with entries of the same length, or of one each.

    Args:
        operands: As of ``attend_heads``.
        pasts: Keys and values before the new ones, adjacent in the last axis; or of no size.
        news: Keys and values to follow them, adjacent in the last axis.
        joined: Where both are written, the memory of those among the operands; or of no size.
        seen: Which keys are seen, the elements of a mask; or of no size.
        added: Where what scores are then added to is written, the mask's memory.
        mask: As of ``attend_heads``.
        sinks: As of ``attend_heads``.
        rule: As of ``attend_heads``.
        before: Keys before the first query's own.
        lengths: How many keys of each entry count, ``(batch,)``, or of no size; ``before`` is then
            what they leave before the queries.
        y: As of ``attend_heads``.
        spans: Room for what ``attend_heads`` is told, ``(batch, 2)``.
        work: As of ``attend_heads``.
        refusal: Where 1 is written if there are not so many keys, or too few for queries that see
            some around their own, else 0.
    """
    q, k, _ = operands
    _, _, left, right, _, _, _ = rule
    keys = min(k.shape[2], mask.shape[3]) if mask.size else k.shape[2]
    least = 1 if left < 0 and right < 0 else q.shape[2]
    refusal[0] = 0
    for entry in range(q.shape[0]):
        spans[entry, 0], spans[entry, 1] = keys, before
        if lengths.size:
            spans[entry, 0], spans[entry, 1] = lengths[entry], lengths[entry] - q.shape[2]
            if not least <= lengths[entry] <= keys:
                refusal[0] = 1
                return
    if joined[0].size:
        _, _, _, threads = work
        team = threads if joined[0].size > SERIAL else 1
        join_past((pasts, news, joined), 2 * k.shape[0] * k.shape[1], team)
    hide_unseen(seen, added)
    attend_heads(operands, mask, sinks, rule, spans, y, work)
