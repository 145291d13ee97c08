"""The parts that tasks make of a convolution's result, against a search of all of them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from running import floats, session

from models import node
from tenonnx_cpu.conv.kernels import (
    COLUMNS_PER_TASK,
    ROWS_PER_TASK,
    TASKS_PER_THREAD,
    TILE_ROWS,
    VECTOR,
)
from tenonnx_cpu.conv.layout import PLAN_CONV, TaskPart, split_tasks


def heights(rows: int, least: int, wanted: int) -> set[int]:
    """Return the numbers of rows that tasks may have."""
    bands = {least, *(max(least, n) for n in (1, 2, 3, 4, 6, 8, 12, 16, wanted))}
    return {-(-rows // n) for n in bands if -(-rows // n) >= TILE_ROWS or n == least}


def cuts(height: int, width: int, across: bool) -> set[tuple[int, int, int]]:
    """Return the lines and columns that tasks may have, and how many parts a result then has."""
    if across:
        spans = {*range(VECTOR, min(width, COLUMNS_PER_TASK + 1), VECTOR)}
        spans |= {width} if width <= COLUMNS_PER_TASK else set()
        return {(1, span, height * -(-width // span)) for span in spans}
    most = max(1, min(height, COLUMNS_PER_TASK // width))
    parts = {-(-height // lines) for lines in range(1, most + 1)}
    return {(-(-height // n), width, n) for n in parts}


@given(
    st.integers(1, 8),
    st.integers(1, 600),
    st.integers(1, 300),
    st.integers(1, 700),
    st.integers(1, 16),
    st.booleans(),
)
def test_the_thread_with_most_work_has_least(
    images: int, rows: int, height: int, width: int, threads: int, across: bool
) -> None:
    wanted = TASKS_PER_THREAD * threads if threads > 1 else 1

    def time(high: int, lines: int, span: int, parts: int) -> float:
        tasks, columns = images * -(-rows // high) * parts, lines * span
        rounds = max(tasks / threads, -(-tasks // threads) if tasks < 2 * wanted else 0)
        packing, tiles = 2 * columns / 16, 8 * -(-high // TILE_ROWS)
        return rounds * (-(-columns // 16) * high + packing + tiles)

    found = split_tasks(images, rows, (height, width), threads, across=across)
    ways = {
        (high, lines, span): time(high, lines, span, parts)
        for high in heights(rows, -(-rows // ROWS_PER_TASK), wanted)
        for lines, span, parts in cuts(height, width, across)
    }
    if not ways:
        assert found == TaskPart(rows, height, width)
    else:
        assert math.isclose(ways[found], min(ways.values()), rel_tol=1e-12)


def test_a_session_looks_for_it_when_it_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first run might not find what the other kernels were planned with."""
    PLAN_CONV.forget()
    w, x = floats(8, 4, 3, 3), floats(1, 4, 9, 9, seed=1)
    one = session([node("Conv", "x w", "y")], {"x": x}, "y", {"w": w})
    monkeypatch.setenv("TENONNX_JIT", "0")
    (y,) = one.run(None, {"x": x})
    (wanted,) = session([node("Conv", "x w", "y")], {"x": x}, "y", {"w": w}).run(None, {"x": x})
    np.testing.assert_allclose(y, wanted, rtol=1e-4, atol=1e-5)
