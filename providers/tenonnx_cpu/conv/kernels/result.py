"""The places that tiles of a convolution read and write, besides their factors."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tenonnx_cpu.jit.compiling import helper
from tenonnx_cpu.matmul.kernels.tile import ADD


class ResultRows(NamedTuple):
    """The address of the first of some rows, and bytes from row to row."""

    start: Any
    apart: Any


class Room(NamedTuple):
    """Addresses of floats to work in.

    Attributes:
        copy: Of rows of A, ``depth + 16`` each: ``ROWS``, or all where panels come one by one.
        edge: Of ``DOTS`` columns of B, likewise.
        panel: Of a panel of B.
    """

    copy: Any
    edge: Any
    panel: Any


class Runs(NamedTuple):
    """Columns of A that are multiplied, of adjacent ones.

    Attributes:
        each: Runs of ``RUN`` columns that follow one another; 0 if B lies in no runs.
        hole: Bytes of columns after them, which are left out.
        length: All columns, those left out among them.
    """

    each: Any
    hole: Any
    length: Any


class Result(NamedTuple):
    """The place of complete sums in the result.

    Attributes:
        y: Address of all of it.
        place: Of the first element, in floats.
        apart: Floats from channel to channel.
        channel: The first one's number among scales and shifts.
        finish: The operations on sums.
    """

    y: Any
    place: Any
    apart: Any
    channel: Any
    finish: Any


class TileTarget(NamedTuple):
    """The arrays and numbers of a tile besides its factors; see ``multiply_taps``."""

    before: Any
    rows: Any
    added: Any
    scale: Any
    shift: Any
    low: Any
    high: Any


@helper
def target_of(row: Any, c: Any, mode: Any, last: Any, result: Any) -> Any:
    """Return what tiles from a row on read and write."""
    finish, ones, zeros = result.finish, result.finish.units, result.finish.units + 256
    rows, nothing = ResultRows(c.start + row * c.apart, c.apart), ResultRows(zeros, 0)
    before = rows if mode == ADD else nothing
    if not last:
        low, high = np.float32(-np.inf), np.float32(np.inf)
        return TileTarget(before, rows, nothing, ones, zeros, low, high)
    start, apart = 4 * (result.place + row * result.apart), 4 * result.apart
    channel = 4 * (result.channel + row)
    return TileTarget(
        before, ResultRows(result.y + start, apart),
        ResultRows(finish.residual + start, apart) if finish.residual else nothing,
        finish.scale + channel, finish.shift + channel, finish.low, finish.high,
    )  # fmt: skip


@helper
def right_of(rows: Any, column: Any) -> Any:
    """Return the address of a column of the first row, or of what stands for all rows."""
    return rows.start + (4 * column if rows.apart else 0)
