"""AMX: tiles of the processor, and sums of products of some tiles by others.

A tile has up to 16 rows of up to 64 bytes. One step multiplies each row's words of four bytes, of
A, by as many rows of B's words, a word of each of 16 columns: four bytes each, or two bfloat16. A
tile of A may have any distance from row to row. A panel of B whose rows have words of 32 columns
side by side is two columns of tiles, as it lies.

``begin_tiles`` gives the tiles their shapes and ``end_tiles`` takes them back, once a task: between
them there is nothing else that uses tiles, and a thread whose tiles are in use is costly to switch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from llvmlite import ir

from tenonnx_cpu.jit.code.cpu import cpu
from tenonnx_cpu.jit.compiling import helper
from tenonnx_cpu.jit.vectors import vector as v
from tenonnx_cpu.jit.vectors.shared import shared
from tenonnx_cpu.jit.vectors.vector import I8, I16, I64, POINTER, VOID, Builder, Value

HAS_TILES = cpu().amx

# Rows of a tile at most.
TALL = 16

# Bytes of a word, of a row of a tile of sums, and of a row of a panel of B.
WORD, TILE_ROW, PANEL_ROW = 4, 64, 128

# Rows of tiles that are worth their loads.
SHORTEST = 4

# Numbers of the tiles: two by two of sums, two of A below one another, two of B side by side.
SUMS, LEFTS, RIGHTS = (0, 1, 2, 3), (4, 5), (6, 7)

# The instructions by kinds of elements: of uint8 by int8 in int32, of bfloat16 in float32.
DOTS = {"bytes": "tdpbusd", "bf16": "tdpbf16ps"}

# Lines that a step brings along, and the bytes of one: four rows of tiles bring a panel.
AHEAD, CACHE_LINE = 8, 64

# Bytes of a configuration, and where those of tiles' rows and their numbers begin.
CONFIGURATION, SHAPES, HEIGHTS = 64, 16, 48


def _call(b: Builder, name: str, *arguments: Value) -> None:
    v.call_function(b, f"llvm.x86.{name}", VOID, *arguments)


def _pointer(b: Builder, address: Value) -> Value:
    return b.inttoptr(address, POINTER)


@shared("tenonnx_tiles_begin")
def begin_tiles(b: Builder, /, tall: Value, deep: Value) -> None:
    """Have tiles of A ``tall`` rows of ``deep`` words, and those of B and of sums what fits."""
    if not HAS_TILES:
        return
    memory = b.alloca(ir.ArrayType(I8, CONFIGURATION))
    memory.align = CONFIGURATION
    start = b.ptrtoint(memory, I64)
    whole = v.vector(I8, CONFIGURATION)
    v.store(b, ir.Constant(whole, [1] + [0] * (CONFIGURATION - 1)), start)
    deep_bytes = b.mul(deep, I64(WORD))
    shapes = {SUMS: (tall, I64(TILE_ROW)), LEFTS: (tall, deep_bytes), RIGHTS: (deep, I64(TILE_ROW))}
    for tiles, (rows, row_bytes) in shapes.items():
        for tile in tiles:
            v.store(b, b.trunc(row_bytes, I16), b.add(start, I64(SHAPES + 2 * tile)))
            v.store(b, b.trunc(rows, I8), b.add(start, I64(HEIGHTS + tile)))
    _call(b, "ldtilecfg", b.bitcast(memory, POINTER))


@shared("tenonnx_tiles_end")
def end_tiles(b: Builder, /) -> None:
    """Give the tiles back."""
    if HAS_TILES:
        _call(b, "tilerelease")


def sum_tiles(
    b: Builder,
    kind: str,
    vectors: int,
    lefts: Sequence[Value],
    left_row: Value,
    offsets: Value,
    panel: Value,
    steps: Value,
    deep: Value,
    ahead: Value | None = None,
) -> None:
    """Add sums of products to those in tiles, as ``clear_tiles`` or ``load_tiles`` left them.

    Args:
        b: Writes it.
        kind: Of ``DOTS``.
        vectors: Columns of tiles: 1 or 2.
        lefts: Addresses that offsets count from at the first row of each tile of A: 1 or 2.
        left_row: Bytes from row to row.
        offsets: Address of an int64 for every word of a row of A: bytes to it. Words of a step are
            adjacent.
        panel: Address of a panel of B: for every word a row of ``PANEL_ROW``.
        steps: How many times ``deep`` words.
        deep: As tiles have been begun with.
        ahead: Address of what comes next: each step brings ``AHEAD`` lines into the second-level
            cache.
    """
    across = b.mul(deep, I64(PANEL_ROW))
    along = b.mul(deep, I64(8))

    def step(index: Value, carried: list[Value]) -> list[Value]:
        line, own = carried
        place = v.load(b, I64, own, 8)
        for n in range(vectors):
            right = _pointer(b, b.add(line, I64(TILE_ROW * n)))
            _call(b, "tileloadd64", I8(RIGHTS[n]), right, I64(PANEL_ROW))
        for row, start in enumerate(lefts):
            left = _pointer(b, b.add(start, place))
            _call(b, "tileloadd64", I8(LEFTS[row]), left, left_row)
            for n in range(vectors):
                tiles = (SUMS[2 * row + n], LEFTS[row], RIGHTS[n])
                _call(b, DOTS[kind], *map(I8, tiles))
        if ahead is not None:
            soon = b.add(ahead, b.mul(index, I64(AHEAD * CACHE_LINE)))
            for n in range(AHEAD):
                v.prefetch(b, b.add(soon, I64(CACHE_LINE * n)))
        return [b.add(line, across), b.add(own, along)]

    v.loop(b, steps, [panel, offsets], step)


def clear_tiles(b: Builder, vectors: int, rows: Sequence[Value]) -> None:
    """Have sums begin with 0: of ``vectors`` columns of tiles, and as many rows as are given."""
    for number, _, _ in _sums(vectors, rows):
        _call(b, "tilezero", number)


def load_tiles(
    b: Builder, vectors: int, places: Sequence[Value], row: Value, vector: Value
) -> None:
    """Have sums begin with those at the address of each tile's first row; see ``store_tiles``."""
    for number, place, n in _sums(vectors, places):
        source = _pointer(b, b.add(place, b.mul(vector, I64(n))))
        _call(b, "tileloadd64", number, source, row)


def store_tiles(
    b: Builder, vectors: int, places: Sequence[Value], row: Value, vector: Value
) -> None:
    """Store sums at the address of each tile's first row.

    ``row`` is bytes from row to row, ``vector`` those from one column of tiles to the next.
    """
    for number, place, n in _sums(vectors, places):
        target = _pointer(b, b.add(place, b.mul(vector, I64(n))))
        _call(b, "tilestored64", number, target, row)


def _sums(vectors: int, places: Sequence[Value]) -> Iterator[tuple[Value, Value, int]]:
    """Yield the number of each tile of sums, its row's place and its column of tiles."""
    for row, place in enumerate(places):
        for n in range(vectors):
            yield I8(SUMS[2 * row + n]), place, n


@helper
def height_of(rows: int) -> int:
    """Return how many rows tiles have that share out so many; 0 if tiles are of no use."""
    if not HAS_TILES:
        return 0
    tall = -(-rows // -(-rows // TALL))
    return tall if tall >= SHORTEST else 0
