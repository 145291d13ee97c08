"""A strip of a convolution of bytes: some of its channels for columns of the image at hand."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tenonnx_cpu.jit.compiling import helper
from tenonnx_cpu.jit.conv.strip import Rows
from tenonnx_cpu.jit.int8.conv_rows import gather_columns, interleave_fours
from tenonnx_cpu.jit.int8.conv_tile import (
    DOT_ROWS,
    DOTS,
    ROUNDED,
    SUMMED,
    multiply_byte_columns,
    multiply_bytes,
    scaled,
)
from tenonnx_cpu.jit.products.block import split
from tenonnx_cpu.jit.products.tile import COLUMNS, ROWS, VECTORS
from tenonnx_cpu.jit.vectors.lanes import LANES
from tenonnx_cpu.jit.vectors.memory import load_float, store_float, store_word
from tenonnx_cpu.jit.vectors.views import elements

U8 = np.uint8


class Seen(NamedTuple):
    """Where the rows of B are.

    Attributes:
        packed: Address of the planes' first column.
        table: Address of where rows are there.
        image: Address of the image's first column.
        own: Address of where its channels are.
        ready: How many fours of rows come from there.
        flip: Bits of the image that are inverted.
    """

    packed: Any
    table: Any
    image: Any
    own: Any
    ready: Any
    flip: Any


@helper
def multiply_byte_strip(
    rows: Any, depth: Any, columns: Any, a: Any, seen: Any, c: Any, first: Any, last: Any,
    result: Any, panel: Any, edge: Any,
) -> None:  # fmt: skip
    """Multiplies rows of A by columns of B, and finishes those of whole panels.

    Args:
        rows: Of A and C.
        depth: Columns of A, rows of B.
        columns: Of B and C.
        a: Rows, whose columns are adjacent.
        seen: Where B is.
        c: Rows of sums that have room for whole panels.
        first: Whether there are none yet.
        last: Whether they are complete with this.
        result: Where whole panels go then.
        panel: Address of a panel to work in.
        edge: Address of room for the last columns.
    """
    fours, dots = -(-depth // 4), columns % LANES if columns % LANES <= DOTS else 0
    for column in range(0, columns - dots, COLUMNS):
        if seen.ready:
            interleave_fours(seen.image + column, seen.own, seen.ready, panel, seen.flip)
        interleave_fours(
            seen.packed + column, seen.table + 32 * seen.ready, fours - seen.ready,
            panel + 4 * COLUMNS * seen.ready, U8(0),
        )  # fmt: skip
        vectors = VECTORS // 2 if columns - dots - column <= LANES else VECTORS
        whole = last and column + COLUMNS <= columns
        multiply_panel(rows, depth, vectors, column, a, panel, c, first, whole, result)
    if dots:
        multiply_byte_edge(rows, depth, columns - dots, dots, a, seen, c, first, result, edge)


@helper
def multiply_panel(
    rows: Any, depth: Any, vectors: Any, column: Any, a: Any, panel: Any, c: Any, first: Any,
    whole: Any, result: Any,
) -> None:  # fmt: skip
    """Multiplies by a panel, whose sums become the result's if they are ``whole``."""
    finish = result.finish
    high, width = split(rows, ROWS, 1), 1 if finish.form == ROUNDED else 4
    done = finish.form if whole and finish.form != SUMMED else 0
    for i in range(0, rows, high):
        old, own = c.start + i * c.apart + 4 * column, 4 * (result.channel + i)
        target = Rows(old, c.apart)
        if whole:
            start = width * (result.place + i * result.apart + column)
            target = Rows(result.y + start, width * result.apart)
        multiply_bytes(
            vectors, min(high, rows - i), a.start + i * a.apart, a.apart, panel, -(-depth // 4),
            0 if first else old, c.apart, target.start, target.apart, done,
            finish.extra + own, finish.factor + own, finish.summand + own,
            a.start + ((i + high) * a.apart if i + high < rows else depth),
            finish.low, finish.high, finish.zero,
        )  # fmt: skip


@helper
def multiply_byte_edge(
    rows: Any, depth: Any, column: Any, columns: Any, a: Any, seen: Any, c: Any, first: Any,
    result: Any, edge: Any,
) -> None:  # fmt: skip
    """Multiplies by the last few columns, from ``column`` on."""
    pitch = -(-depth // 64) * 64
    if seen.ready:
        gather_columns(seen.image + column, seen.own, depth, columns, edge, pitch, seen.flip)
    else:
        gather_columns(seen.packed + column, seen.table, depth, columns, edge, pitch, U8(0))
    for i in range(0, rows, DOT_ROWS):
        multiply_byte_columns(
            min(DOT_ROWS, rows - i), columns, a.start + i * a.apart, a.apart, edge, pitch, depth,
            c.start + i * c.apart + 4 * column, c.apart,
            result.finish.extra + 4 * (result.channel + i), np.intp(first),
        )  # fmt: skip


@helper
def finish_rows(rows: Any, columns: Any, c: Any, result: Any) -> None:
    """Turns the sums of the last panel, which is not whole, into what is wanted."""
    whole, finish = columns // COLUMNS * COLUMNS, result.finish
    width = 1 if finish.form == ROUNDED else 4
    for i in range(rows):
        sums = elements(c.start + i * c.apart + 4 * whole, columns - whole, np.int32)
        made = result.y + width * (result.place + i * result.apart + whole)
        own = 4 * (result.channel + i)
        finish_row(
            sums, made, load_float(finish.factor + own), load_float(finish.summand + own), finish
        )


@helper
def finish_row(sums: Any, made: Any, factor: Any, summand: Any, finish: Any) -> None:
    """Writes what becomes of sums to an address; see ``multiply_bytes``."""
    low, high = finish.low, finish.high
    if finish.form == ROUNDED:
        row = elements(made, sums.size, np.uint8)
        for i in range(sums.size):
            x = np.rint(scaled(sums[i], factor, summand))
            x = low if x < low else x
            x = high if x > high else x
            row[i] = U8(np.int32(x) + finish.zero)
    elif finish.form == SUMMED:
        for i in range(sums.size):
            store_word(sums[i], made + 4 * i)
    else:
        for i in range(sums.size):
            x = scaled(sums[i], factor, summand)
            x = low if x < low else x
            x = high if x > high else x
            store_float(x, made + 4 * i)
