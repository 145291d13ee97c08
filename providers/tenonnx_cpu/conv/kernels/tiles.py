"""Convolution in tiles: bfloat16, summed in float32, as products of places by channels.

Images are rounded once for all their readers. What a place sees of one tap, or of a line of them,
is a run of a row of A as it lies.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tenonnx_cpu.conv.kernels import TILE_PLACES, TILES_FIELDS
from tenonnx_cpu.conv.kernels.channel_lanes import finish_lines
from tenonnx_cpu.conv.kernels.finish import activate_lines, finish_of
from tenonnx_cpu.conv.kernels.signature import CONVOLUTION, WINDOWS
from tenonnx_cpu.conv.kernels.tasks import part_of
from tenonnx_cpu.int8.kernels.band import fill_bytes
from tenonnx_cpu.jit.compiling import helper, kernel
from tenonnx_cpu.jit.threads.parallel_for import parallel
from tenonnx_cpu.jit.vectors import vector as v
from tenonnx_cpu.jit.vectors.amx import HAS_TILES, PANEL_ROW, TILE_ROW, begin_tiles, end_tiles
from tenonnx_cpu.jit.vectors.bfloat16 import narrow_row, narrow_square
from tenonnx_cpu.jit.vectors.dot16 import HAS_PAIRS, TALLEST_PAIRS, sum_pairs
from tenonnx_cpu.jit.vectors.lanes import (
    KIND,
    LANES,
    MASK,
    clipped,
    for_columns,
    load_masked,
    write,
)
from tenonnx_cpu.jit.vectors.named import named
from tenonnx_cpu.jit.vectors.shared import shared
from tenonnx_cpu.jit.vectors.tiles import addresses
from tenonnx_cpu.jit.vectors.vector import F32, I64, Builder, Value
from tenonnx_cpu.matmul.kernels.bfloat16 import (
    TALLEST,
    multiply_narrow_rows,
    multiply_narrow_tiles,
    tile_begin,
    tiles_of,
)
from tenonnx_cpu.matmul.kernels.block import split
from tenonnx_cpu.matmul.kernels.tile import COLUMNS, VECTORS, ZERO

tiles_sizes = named("TilesSizes", TILES_FIELDS)

# Bytes from one vector of channels of all places to the next.
VECTOR = TILE_ROW * TILE_PLACES


@parallel
def round_piece(arguments: Any, task: Any, worker: Any) -> None:
    """Round some places of a line of an image, or of padding."""
    x, copy, sizes = arguments
    line, first = task // sizes.pieces, task % sizes.pieces * sizes.piece
    image, row = line // sizes.lines, line % sizes.lines - sizes.top
    count = min(sizes.piece, sizes.columns - first)
    target = copy + image * sizes.image + line % sizes.lines * sizes.line + first * sizes.pixel
    begin = min(count, max(0, sizes.left - first))
    end = max(begin, min(count, sizes.left + sizes.width - first))
    if not 0 <= row < sizes.height:
        begin, end = count, count
    fill_bytes(target, begin * sizes.pixel, np.uint8(0))
    fill_bytes(target + end * sizes.pixel, (count - end) * sizes.pixel, np.uint8(0))
    if begin == end:
        return
    place, target = first + begin - sizes.left, target + begin * sizes.pixel
    if sizes.from_last:
        places = (image * sizes.height + row) * sizes.width + place
        round_last(x + 4 * places * sizes.channels, end - begin, target, sizes)
    else:
        lines = image * sizes.channels * sizes.height + row
        round_first(x + 4 * (lines * sizes.width + place), end - begin, target, sizes)


@helper
def round_last(source: Any, count: Any, target: Any, sizes: Any) -> None:
    """Round places of an image that has its channels last."""
    if sizes.pixel == 2 * sizes.channels:
        narrow_row(source, count * sizes.channels, target, count * sizes.channels)
        return
    for place in range(count):
        here = source + 4 * place * sizes.channels
        narrow_row(here, sizes.channels, target + place * sizes.pixel, sizes.pixel // 2)


@helper
def round_first(source: Any, count: Any, target: Any, sizes: Any) -> None:
    """Round places of an image that has its channels first."""
    apart, own = 4 * sizes.height * sizes.width, sizes.pixel // 2
    for channel in range(0, own, LANES):
        rows = max(0, min(LANES, sizes.channels - channel))
        # Where there are no more channels, nothing of the line is read.
        here = source + min(channel, sizes.channels - 1) * apart
        for place in range(0, count, LANES):
            narrow_square(
                here + 4 * place, apart, rows, min(LANES, count - place),
                target + place * sizes.pixel + 2 * channel, sizes.pixel, min(LANES, own - channel),
            )  # fmt: skip


class Places(NamedTuple):
    """Some places of the result, of whole lines or of a part of one.

    Attributes:
        source: Address of what the first one sees.
        lines: How many lines.
        width: Places of each.
        image: The number of the image.
        line: The number of the first line in it.
        first: The first place's number in it.
    """

    source: Any
    lines: Any
    width: Any
    image: Any
    line: Any
    first: Any


@parallel
def convolve_in_tiles(arguments: Any, task: Any, worker: Any) -> None:
    """Make some channels of some lines; see ``tenonnx_cpu.conv.tiles``."""
    w, y, finish, sizes, offsets, copy = arguments
    part = part_of(task, sizes)
    sums = copy + 4 * (sizes.copy + sizes.work * worker)
    width = part.columns // part.lines
    span = split(width, TILE_PLACES, 1)
    least = width - (-(-width // span) - 1) * span
    tall = -(-least // -(-least // TALLEST))
    together = max(1, TILE_PLACES // width)
    begin_tiles(tall, sizes.deep)
    for channel in range(part.first, part.first + part.rows, COLUMNS):
        some = min(COLUMNS, part.first + part.rows - channel)
        panel = w.ctypes.data + 4 * sizes.words * channel
        for line in range(0, part.lines, together):
            for left in range(0, width, span):
                row, column = part.top + line, part.left + left
                source = copy + part.image * sizes.image + row * sizes.stride_y * sizes.line
                places = Places(
                    source + column * sizes.step, min(together, part.lines - line),
                    min(span, width - left), part.image, row, row * sizes.out_width + column,
                )  # fmt: skip
                if sizes.last and not HAS_TILES:
                    convolve_places(
                        places, offsets.ctypes.data, panel, channel, some, y, finish, sizes
                    )
                    continue
                multiply_places(places, tall, offsets.ctypes.data, panel, some, sums, sizes)
                if sizes.last:
                    finish_last(places, channel, some, sums, y, finish, sizes)
                else:
                    finish_first(places, channel, some, sums, y, finish, sizes)
    end_tiles()


@helper
def seen_words(line: Any, sizes: Any) -> Any:
    """Return the first word that a line of the result sees of the image, and how many it sees.

    The words of taps above the image and below it are zeros.
    """
    each, top = sizes.words // sizes.taps_y, line * sizes.stride_y - sizes.top
    first = min(sizes.taps_y, -(min(0, top) // sizes.apart_y))
    last = max(first, min(sizes.taps_y, (sizes.height - 1 - top) // sizes.apart_y + 1))
    return first * each, (last - first) * each


@helper
def multiply_places(
    places: Any, tall: Any, offsets: Any, panel: Any, some: Any, sums: Any, sizes: Any
) -> None:
    """Write the sums of some places for a panel of ``some`` channels."""
    if HAS_TILES:
        multiply_places_in_tiles(places, tall, offsets, panel, some, sums, sizes)
        return
    width, apart, tiles = places.width, sizes.stride_y * sizes.line, tiles_of(places.width)
    for line in range(places.lines):
        first, count = seen_words(places.line + line, sizes)
        for tile in range(tiles):
            place = tile_begin(tile, tiles, width)
            multiply_narrow_rows(
                -(-some // LANES), tile_begin(tile + 1, tiles, width) - place,
                places.source + line * apart + place * sizes.step, sizes.step, offsets + 8 * first,
                panel + PANEL_ROW * first, count, sums + TILE_ROW * (line * width + place),
                TILE_ROW, VECTOR, ZERO, panel,
            )  # fmt: skip


@helper
def multiply_places_in_tiles(
    places: Any, tall: Any, offsets: Any, panel: Any, some: Any, sums: Any, sizes: Any
) -> None:
    """Write the sums of some places in AMX's tiles.

    A line's last tile ends where the line does: what it has in common with the one before is
    computed twice.
    """
    width, apart = places.width, sizes.stride_y * sizes.line
    each = -(-width // tall)
    count = places.lines * each
    for tile in range(0, count, 2):
        other = min(tile + 1, count - 1)
        line, place = tile // each, min(tile % each * tall, width - tall)
        line_next, place_next = other // each, min(other % each * tall, width - tall)
        multiply_narrow_tiles(
            -(-some // LANES), other - tile + 1,
            places.source + line * apart + place * sizes.step,
            places.source + line_next * apart + place_next * sizes.step, sizes.step, offsets, panel,
            sizes.words // sizes.deep, sizes.deep, sums + TILE_ROW * (line * width + place),
            sums + TILE_ROW * (line_next * width + place_next), TILE_ROW, VECTOR, ZERO, panel,
        )  # fmt: skip


@helper
def convolve_places(
    places: Any, offsets: Any, panel: Any, channel: Any, some: Any, y: Any, finish: Any, sizes: Any
) -> None:
    """Make some places of a result that has its channels last, with sums in registers."""
    width, apart, tiles = places.width, sizes.stride_y * sizes.line, tiles_of(places.width)
    y_row = 4 * sizes.rows
    image = places.image * sizes.out_height * sizes.out_width + places.first
    for line in range(places.lines):
        first, count = seen_words(places.line + line, sizes)
        for tile in range(tiles):
            place = tile_begin(tile, tiles, width)
            start = (image + line * width + place) * y_row + 4 * channel
            convolve_rows(
                -(-some // LANES), tile_begin(tile + 1, tiles, width) - place,
                places.source + line * apart + place * sizes.step, sizes.step, offsets + 8 * first,
                panel + PANEL_ROW * first, count, y + start, y_row,
                finish.residual + start if finish.residual else 0, finish.scale + 4 * channel,
                finish.shift + 4 * channel, some, finish.low, finish.high,
            )  # fmt: skip
    start = image * y_row + 4 * channel
    activate_lines(y + start, y_row, places.lines * width, some, finish)


@helper
def finish_last(
    places: Any, channel: Any, some: Any, sums: Any, y: Any, finish: Any, sizes: Any
) -> None:
    """Finish sums of a result that has its channels last."""
    apart, count = 4 * sizes.rows, places.lines * places.width
    first = places.image * sizes.out_height * sizes.out_width + places.first
    start = first * apart + 4 * channel
    finish_places(
        -(-some // LANES), sums, count, y + start, apart,
        finish.residual + start if finish.residual else 0, finish.scale + 4 * channel,
        finish.shift + 4 * channel, some, finish.low, finish.high,
    )  # fmt: skip
    activate_lines(y + start, apart, count, some, finish)


@helper
def finish_first(
    places: Any, channel: Any, some: Any, sums: Any, y: Any, finish: Any, sizes: Any
) -> None:
    """Finish sums of a result that has its channels first."""
    area, count = sizes.out_height * sizes.out_width, places.lines * places.width
    for number in range(-(-some // LANES)):
        own, lanes = channel + LANES * number, min(LANES, some - LANES * number)
        start = 4 * ((places.image * sizes.rows + own) * area + places.first)
        finish_lines(
            sums + VECTOR * number, 0, 1, count, lanes, y + start, 0, 4 * area,
            finish.residual + start if finish.residual else 0, finish.scale + 4 * own,
            finish.shift + 4 * own, finish.low, finish.high,
        )  # fmt: skip
        activate_lines(y + start, 4 * area, lanes, count, finish)


@shared("tenonnx_finish_places", [(vectors,) for vectors in range(1, VECTORS + 1)], last=(F32, F32))
def finish_places(
    b: Builder, vectors: int, /, sums: Value, count: Value, y: Value, y_row: Value, residual: Value,
    scale: Value, shift: Value, columns: Value, low: Value, high: Value,
) -> None:  # fmt: skip
    """Write ``clip(sums * scale + shift + residual, low, high)`` for some places.

    Args:
        sums: Address of the first place's vector, ``TILE_ROW`` from the next one's; the second
            vectors are ``VECTOR`` behind the first.
        count: How many places.
        y: Address of the result; ``y_row`` is bytes from place to place.
        residual: Address of what is added, as the result lies; 0 if nothing is.
        scale: Address of a factor per column.
        shift: Address of a summand per column.
        columns: How many are written, and read of the others.
        low: The least result; NaN stays NaN.
        high: The greatest result.
    """
    lows, highs = v.splat(b, low, LANES), v.splat(b, high, LANES)
    given = b.icmp_signed("!=", residual, I64(0))
    nothing = v.constant(MASK, 0)

    def rows(masks: Any) -> None:
        whole = [v.constant(MASK, 1) if mask is None else mask for mask in masks]
        factors, summands = (
            [load_masked(b, b.add(each, I64(4 * LANES * n)), whole[n]) for n in range(vectors)]
            for each in (scale, shift)
        )

        def row(index: Value, carried: list[Value]) -> list[Value]:
            for n, mask in enumerate(masks):
                line = b.add(sums, b.add(b.mul(index, I64(TILE_ROW)), I64(VECTOR * n)))
                x = v.fma(b, v.load(b, KIND, line, 4), factors[n], summands[n])
                place = b.add(b.mul(index, y_row), I64(4 * LANES * n))
                # Of memory that does not exist, even no lanes are slow to load.
                other = b.select(given, b.add(residual, place), sums)
                x = b.fadd(x, load_masked(b, other, b.select(given, whole[n], nothing)))
                write(b, clipped(b, x, lows, highs), b.add(y, place), mask)
            return []

        v.loop(b, count, [], row)

    for_columns(b, columns, vectors, rows)


@shared(
    "tenonnx_convolve_rows",
    [(vectors, rows) for vectors in range(1, VECTORS + 1) for rows in range(1, TALLEST_PAIRS + 1)]
    if HAS_PAIRS
    else [(1, 1)],
    last=(F32, F32),
)
def convolve_rows(
    b: Builder, vectors: int, rows: int, /, a: Value, a_row: Value, offsets: Value, panel: Value,
    pairs: Value, y: Value, y_row: Value, residual: Value, scale: Value, shift: Value,
    columns: Value, low: Value, high: Value,
) -> None:  # fmt: skip
    """Write what ``finish_places`` makes of the sums of some places, which stay in registers.

    The first arguments are those of ``multiply_narrow_rows``, the others those of
    ``finish_places``.
    """
    if not HAS_PAIRS:
        return
    given, nothing = b.icmp_signed("!=", residual, I64(0)), v.constant(MASK, 0)
    # Of memory that does not exist, even no lanes are slow to load.
    residual = b.select(given, residual, y)
    targets, others = (
        addresses(b, y, y_row, range(rows)),
        addresses(b, residual, y_row, range(rows)),
    )
    for other in others:
        for n in range(vectors):
            v.prefetch(b, b.add(other, I64(4 * LANES * n)), 1)
    sums = sum_pairs(b, vectors, rows, a, a_row, offsets, panel, pairs, panel)
    lows, highs = v.splat(b, low, LANES), v.splat(b, high, LANES)

    def put(masks: Any) -> None:
        for n, mask in enumerate(masks):
            whole = v.constant(MASK, 1) if mask is None else mask
            factor, summand = (
                load_masked(b, b.add(each, I64(4 * LANES * n)), whole) for each in (scale, shift)
            )
            own = b.select(given, whole, nothing)
            for total, target, other in zip(sums[n::vectors], targets, others, strict=True):
                x = v.fma(b, total, factor, summand)
                x = b.fadd(x, load_masked(b, b.add(other, I64(4 * LANES * n)), own))
                write(b, clipped(b, x, lows, highs), b.add(target, I64(4 * LANES * n)), mask)

    for_columns(b, columns, vectors, put)


@kernel(CONVOLUTION, WINDOWS)
def conv_tiles(x, w, y, after, layout, memory, threads):  # type: ignore[no-untyped-def] # the signature has them
    """Convolve as ``tenonnx_cpu.conv.tiles.tiles_layout`` says."""
    numbers, offsets, _, _ = layout
    sizes = tiles_sizes(numbers)
    finish = finish_of(after)
    copy = np.intp(memory.ctypes.data)
    round_piece((np.intp(x.ctypes.data), copy, sizes), sizes.rounding, threads)
    arguments = (w, np.intp(y.ctypes.data), finish, sizes, offsets, copy)
    convolve_in_tiles(arguments, sizes.tasks, threads)
