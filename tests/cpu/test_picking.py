"""GatherElements on a kernel is what numpy's is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from running import Watch, floats, require_kernels, session

import tenonnx
from models import INT64, node
from tenonnx_cpu.data_movement.picking import PICK

require_kernels()


def gather(data: Any, places: Any, threads: int, **attributes: int) -> Any:
    feeds = {"x": data, "p": places}
    nodes = [node("GatherElements", "x p", "y", **attributes)]
    return session(nodes, feeds, "y", threads=threads, kinds={"p": INT64}).run(None, feeds)[0]


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize(
    ("data", "places", "axis", "taken"),
    [
        ((3, 40, 33), (3, 40, 80), -1, True),
        ((12, 128, 64), (12, 128, 64), 2, True),
        ((5000,), (4096,), 0, True),
        ((3, 40, 33), (3, 30, 80), -1, False),  # other rows are fewer
        ((64, 80), (70, 80), 0, False),
        ((3, 4), (3, 5), 1, True),
    ],
)
def test_elements(
    data: Any, places: Any, axis: int, taken: bool, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, count = floats(*data), data[axis]
    at = np.random.default_rng(1).integers(-count, count, places)
    watch = Watch(PICK, monkeypatch)
    found = gather(x, at, threads, axis=axis)
    assert watch.calls == taken
    rows = x[tuple(slice(n) for n in places[:-1])] if axis != 0 else x
    np.testing.assert_array_equal(found, np.take_along_axis(rows, at, axis))


def test_places_that_all_rows_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """As exporters expand them: a view whose stacks are one."""
    x, at = floats(6, 40, 50), np.random.default_rng(1).integers(0, 40, (50, 40))
    nodes = [
        node("Transpose", "x", "t", perm=[0, 2, 1]),
        node("Expand", "p s", "e"),
        node("GatherElements", "t e", "y", axis=2),
    ]
    watch = Watch(PICK, monkeypatch)
    feeds = {"x": x, "p": at}
    done = session(nodes, feeds, "y", {"s": np.array([6, 50, 40])}, kinds={"p": INT64})
    (found,) = done.run(None, feeds)
    assert watch.calls == 1
    expected = np.take_along_axis(x.transpose(0, 2, 1), np.broadcast_to(at, (6, 50, 40)), 2)
    np.testing.assert_array_equal(found, expected)


def test_a_place_that_is_not_there() -> None:
    at = np.zeros((64, 80), np.int64)
    at[63, 79] = 33
    with pytest.raises(tenonnx.RuntimeException, match="33"):
        gather(floats(64, 33), at, 1, axis=1)
