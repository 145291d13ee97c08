"""Pad, Concat, Tile and their kind on one kernel: what numpy does, however arrays lie."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from running import Watch, floats, session

import tenonnx
from models import node
from tenonnx_cpu.data_movement.moves import MAX_SINGLE_ELEMENTS, numbers_of, traced
from tenonnx_cpu.data_movement.pad_tile import MOVE

X = floats(2, 3, 20, 30)
INT64 = 7


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Watch:
    return Watch(MOVE, monkeypatch)


def check(nodes: Any, feeds: Any, weights: Any, expected: Any, kernel: Watch, **how: Any) -> None:
    one = session(nodes, feeds, "y", weights, **how)
    for _ in range(3):
        (y,) = one.run(None, feeds)
        assert y.dtype == expected.dtype
        np.testing.assert_array_equal(y, expected)
    assert kernel.calls == 3


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge", "wrap"])
@pytest.mark.parametrize("pads", [[0, 0, 3, 2, 0, 0, 1, 4], [1, 0, -2, 1, 0, 2, 5, -3]])
def test_padded(mode: str, pads: list[int], kernel: Watch) -> None:
    ends = list(zip(pads[:4], pads[4:], strict=True))
    kept = X[
        tuple(slice(max(0, -b), n - max(0, -a)) for n, (b, a) in zip(X.shape, ends, strict=True))
    ]
    widths = [(max(0, b), max(0, a)) for b, a in ends]
    more: Any = {"constant_values": 2.5} if mode == "constant" else {}
    weights = {"p": np.array(pads), "v": np.float32(2.5)}
    expected = np.pad(kept, widths, mode=mode, **more)  # type: ignore[call-overload]
    check([node("Pad", "x p v", "y", mode=mode)], {"x": X}, weights, expected, kernel)


OTHERS = {
    "Tile": ([node("Tile", "x c", "y")], np.array([1, 2, 1, 3]), np.tile(X, (1, 2, 1, 3))),
    "Gather": (
        [node("Gather", "x c", "y", axis=3)],
        np.array([1, 2, -1, 9]),
        X[..., [1, 2, -1, 9]],
    ),
    "Trilu": ([node("Trilu", "x c", "y", upper=0)], np.array(2), np.tril(X, 2)),
}


@pytest.mark.parametrize("name", OTHERS)
def test_repeated_and_picked(name: str, kernel: Watch) -> None:
    nodes, constant, expected = OTHERS[name]
    check(nodes, {"x": X}, {"c": constant}, expected, kernel)


def test_repeated_as_shapes_say(kernel: Watch) -> None:
    nodes = [node("Shape", "z", "s"), node("Tile", "x s", "y")]
    x = floats(4, 3)
    one = session(nodes, {"x": x, "z": x}, "y")
    for shape in [(1, 2), (3, 1)] * 3 + [(2, 2)] * 4:
        (y,) = one.run(None, {"x": x, "z": np.zeros(shape, np.float32)})
        assert np.array_equal(y, np.tile(x, shape))
        x = x + 1
    assert kernel.calls > 1


@pytest.mark.parametrize("dtype", [np.uint8, np.float16, np.int64])
def test_elements_of_any_width(dtype: Any, kernel: Watch) -> None:
    x = np.arange(60).astype(dtype).reshape(3, 4, 5)
    kind = {np.uint8: 2, np.float16: 10, np.int64: INT64}[dtype]
    nodes = [node("Concat", "x x", "z", axis=1), node("Pad", "z p v", "y")]
    weights = {"p": np.array([0, 1, 2, 0, 0, 1]), "v": np.array(7, dtype)}
    expected = np.pad(np.concatenate([x, x], 1), ((0, 0), (1, 0), (2, 1)), constant_values=7)
    one = session(nodes, {"x": x}, "y", weights, kinds={"x": kind, "y": kind})
    for _ in range(4):
        np.testing.assert_array_equal(one.run(None, {"x": x})[0], expected)
    assert kernel.calls >= 4


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_joined(axis: int, threads: int, kernel: Watch) -> None:
    shapes = [[9, 70, 80] for _ in range(3)]
    for length, shape in zip((1, 33, 70), shapes, strict=True):
        shape[axis] = length
    feeds = {
        name: floats(*shape, seed=n)
        for n, (name, shape) in enumerate(zip("abc", shapes, strict=True))
    }
    expected = np.concatenate(list(feeds.values()), axis)
    nodes = [node("Concat", "a b c", "y", axis=axis)]
    check(nodes, feeds, {}, expected, kernel, threads=threads)


def test_many_columns_are_left_to_numpy(kernel: Watch) -> None:
    feeds = {name: floats(200, 1, seed=n) for n, name in enumerate("abc")}
    one = session([node("Concat", "a b c", "y", axis=1)], feeds, "y")
    for _ in range(4):
        (y,) = one.run(None, feeds)
        np.testing.assert_array_equal(y, np.concatenate(list(feeds.values()), 1))
    assert kernel.calls == 0


def test_parts_that_are_turned_or_empty(kernel: Watch) -> None:
    feeds = {"x": floats(30, 50), "z": floats(50, 3), "e": floats(50, 1)[:, :0]}
    nodes = [node("Transpose", "x", "t", perm=[1, 0]), node("Concat", "t e z", "y", axis=1)]
    check(nodes, feeds, {}, np.concatenate([feeds["x"].T, feeds["z"]], 1), kernel)


def test_shapes_that_never_come_again_are_numpys(kernel: Watch) -> None:
    one = session([node("Concat", "x x", "y", axis=0)], {"x": floats(1, 2)}, "y")
    for length in range(1, 99):
        x = floats(length, 2)
        np.testing.assert_array_equal(one.run(None, {"x": x})[0], np.concatenate([x, x]))
    assert kernel.calls == 1, "the first one"


def test_shapes_that_take_turns_are_the_kernels(kernel: Watch) -> None:
    one = session([node("Concat", "x x", "y", axis=0)], {"x": floats(1, 2)}, "y")
    for length in (3, 5, 7) * 4:
        x = floats(length, 2)
        np.testing.assert_array_equal(one.run(None, {"x": x})[0], np.concatenate([x, x]))
    assert kernel.calls == 10, "all but where the second and the third come first"


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(-1, 9), min_size=1, max_size=40))
def test_runs_are_of_adjacent_elements(places: list[int]) -> None:
    data = np.arange(100, 110)
    moves = traced(np.where(np.array(places) < 0, -1, numbers_of(data, 0)[places]))
    assert moves is not None
    found = np.full(len(places), -9)
    for source, first, target, count, step, times, source_step, target_step in moves.runs.tolist():
        assert step in (-1, 0, 1)
        for n in range(times):
            picked, begin = (
                first + n * source_step + step * np.arange(count),
                target + n * target_step,
            )
            found[begin : begin + count] = data[picked] if source == 0 else -1
    np.testing.assert_array_equal(found, [-1 if n < 0 else data[n] for n in places])


def test_elements_one_by_one_are_few() -> None:
    assert traced(numbers_of(np.zeros((2, MAX_SINGLE_ELEMENTS), np.float32), 0).T) is None


def test_one_slice_by_a_number_that_is_given() -> None:
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    layer = node("Gather", "x i", "y")
    one = session([layer], {"x": x, "i": np.array(0)}, "y", kinds={"x": 1, "i": 7, "y": 1})
    for index in (0, 2, -1, -3):
        (found,) = one.run(None, {"x": x, "i": np.array(index)})
        np.testing.assert_array_equal(found, x[index])
    for index in (3, -4):
        with pytest.raises(tenonnx.InvalidArgument, match=r"expected indices in \[-3, 2\]"):
            one.run(None, {"x": x, "i": np.array(index)})


@pytest.mark.parametrize("op", ["Pad", "Tile"])
def test_no_numbers_are_moved_to_large_results(op: str) -> None:
    """Numbers take eight bytes an element; a few elements may be padded to any size."""
    given = {"Pad": [0, 0, 1000, 1000, 0, 0, 996, 996], "Tile": [1, 1, 500, 500]}[op]
    x = floats(1, 1, 4, 4)
    one = session([node(op, "x c", "y")], {"x": x}, "y", {"c": np.array(given)})
    tracemalloc.start()
    try:
        (y,) = one.run(None, {"x": x})
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert y.shape == (1, 1, 2000, 2000)
    assert peak < 1.5 * y.nbytes
