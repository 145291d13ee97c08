"""Reading and writing by index on kernels is as numpy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from running import Watch, floats, require_kernels, session

import tenonnx
from models import INT64, node
from tenonnx_array.index import gather_elements, gather_nd
from tenonnx_array.scatter import scatter_elements, scatter_nd
from tenonnx_cpu.data_movement.indexed import MOVE_ELEMENTS as PICK
from tenonnx_cpu.data_movement.indexed import MOVE_SLICES

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
        ((3, 40, 33), (3, 30, 80), -1, True),  # other rows are fewer
        ((64, 80), (70, 80), 0, True),
        ((3, 4), (3, 5), 1, True),
        ((9000, 3), (8000, 2), 0, True),  # along the longest axis, not the last
        ((9000, 3), (8000, 5), 1, True),
        ((2, 70, 5, 3), (2, 60, 5, 2), 1, True),
        ((2, 70, 5, 3), (2, 60, 7, 3), 2, True),
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
    np.testing.assert_array_equal(found, gather_elements(np, x, at, axis=axis))


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


KINDS = {
    np.float32: 1, np.uint8: 2, np.int8: 3, np.int32: 6, np.int64: 7, np.bool_: 9, np.float16: 10,
    np.float64: 11, np.uint16: 4, np.int16: 5, np.uint32: 12, np.uint64: 13,
}  # fmt: skip
WAYS = ["none", "add", "mul", "max", "min"]


def drawn(shape: Any, dtype: Any, seed: int = 0) -> Any:
    return np.random.default_rng(seed).integers(-3, 4, shape).astype(dtype)


def found_by(op: str, arrays: list[Any], dtype: Any, threads: int, **attributes: Any) -> Any:
    names = ["x", "p", "u"][: len(arrays)]
    feeds = dict(zip(names, arrays, strict=True))
    kinds = {
        "x": KINDS[dtype],
        "p": 6 if arrays[1].dtype == np.int32 else INT64,
        "u": KINDS[dtype],
        "y": KINDS[dtype],
    }
    nodes = [node(op, " ".join(names), "y", **attributes)]
    one = session(nodes, feeds, "y", threads=threads, kinds=kinds)
    results = [one.run(None, feeds)[0] for _ in range(3)]  # runs, captures, replays
    np.testing.assert_array_equal(results[0], results[2])
    return results[2]


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_elements_of_any_type_along_any_axis(dtype: Any, axis: int) -> None:
    x, shape = drawn((20, 30, 7), dtype), (11, 30, 6)
    at = np.random.default_rng(1).integers(-x.shape[axis], x.shape[axis], shape)
    expected = gather_elements(np, x, at, axis=axis)
    found = found_by("GatherElements", [x, at], dtype, 4, axis=axis)
    np.testing.assert_array_equal(found, expected)
    found = found_by("GatherElements", [x, at.astype(np.int32)], dtype, 4, axis=axis)
    np.testing.assert_array_equal(found, expected)
    updates = drawn(shape, dtype, 2)
    for way in WAYS:
        given = [x, at, updates]
        found = found_by("ScatterElements", given, dtype, 4, axis=axis, reduction=way)
        expected = scatter_elements(np, *given, axis=axis, reduction=way)
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_slices_of_any_type(dtype: Any, depth: int, monkeypatch: pytest.MonkeyPatch) -> None:
    x = drawn((20, 30, 37), dtype)
    lengths = np.array(x.shape[:depth])
    at = np.random.default_rng(1).integers(-lengths, lengths, (5, 9, depth))
    watch = Watch(MOVE_SLICES, monkeypatch)
    found = found_by("GatherND", [x, at], dtype, 2)
    assert watch.calls
    np.testing.assert_array_equal(found, gather_nd(np, x, at))
    if depth < 3:
        at_each = at[:1].repeat(20, 0) % x.shape[1]
        found = found_by("GatherND", [x, at_each % 7], dtype, 2, batch_dims=1)
        np.testing.assert_array_equal(found, gather_nd(np, x, at_each % 7, batch_dims=1))
    updates = drawn((5, 9, *x.shape[depth:]), dtype, 2)
    for way in WAYS:
        found = found_by("ScatterND", [x, at, updates], dtype, 4, reduction=way)
        np.testing.assert_array_equal(found, scatter_nd(np, x, at, updates, reduction=way))


@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize("axis", [0, 1, 2, -2])
def test_picking_along_any_axis(axis: int, index: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    x, kinds = floats(6, 20, 9), {"p": INT64 if index == np.int64 else KINDS[index]}
    at = np.random.default_rng(1).integers(-x.shape[axis], x.shape[axis], (3, 5)).astype(index)
    watches = [Watch(kernel, monkeypatch) for kernel in (PICK, MOVE_SLICES)]
    feeds = {"x": x, "p": at}
    one = session([node("Gather", "x p", "y", axis=axis)], feeds, "y", kinds=kinds)
    for _ in range(3):
        (found,) = one.run(None, feeds)
        np.testing.assert_array_equal(found, np.take(x, at, axis))
    assert sum(watch.calls for watch in watches)
    at[2, 4] = x.shape[axis]
    with pytest.raises(tenonnx.RuntimeException, match=str(x.shape[axis])):
        one.run(None, feeds)


@pytest.mark.parametrize("shape", [(9,), (5, 9), (2, 5, 9)])
def test_columns_that_are_features(shape: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    x, at, watch = floats(*shape), np.array([[8, 0, 3]]), Watch(PICK, monkeypatch)
    steps = [node("ArrayFeatureExtractor", "x p", "y", domain="ai.onnx.ml")]
    kinds, feeds = {"p": INT64}, {"x": x, "p": at}
    one = session(steps, feeds, "y", kinds=kinds, domains={"ai.onnx.ml": 3})
    for _ in range(3):
        (found,) = one.run(None, feeds)
        np.testing.assert_array_equal(found, np.atleast_2d(x)[..., [8, 0, 3]])
    assert watch.calls or x.ndim == 1


@pytest.mark.parametrize("op", ["GatherND", "ScatterND"])
def test_a_slice_that_is_not_there(op: str) -> None:
    x, at = drawn((3, 4), np.float32), np.array([[0], [3]])
    given = [x, at] if op == "GatherND" else [x, at, drawn((2, 4), np.float32)]
    with pytest.raises(tenonnx.RuntimeException, match="3"):
        found_by(op, given, np.float32, 1)
