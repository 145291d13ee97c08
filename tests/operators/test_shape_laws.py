"""Laws for every shape: views are views, round trips come back, clamps are the specification's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tenonnx_array import TABLE

X = np.arange(24, dtype=np.float32).reshape(2, 1, 3, 4)
ARRAYS = hnp.arrays(np.int32, hnp.array_shapes(max_dims=4, max_side=5))


def run(op: str, *inputs: Any, version: int = 25, outputs: int = 1, **attributes: Any) -> Any:
    kernel = TABLE.find("", op, version)
    assert kernel is not None
    for x in inputs:
        if isinstance(x, np.ndarray):
            x.flags.writeable = False
    return kernel.bind(np, attributes, outputs)(*inputs)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


@pytest.mark.parametrize(
    ("op", "inputs", "attributes"),
    [
        ("Transpose", [], {"perm": (3, 0, 2, 1)}),
        ("Reshape", [ints(0, -1)], {}),
        ("Flatten", [], {}),
        ("Squeeze", [], {}),
        ("Unsqueeze", [ints(0, -1)], {}),
        ("Expand", [ints(5, 2, 3, 3, 4)], {}),
        ("Slice", [ints(3), ints(-9), ints(3), ints(-2)], {}),
        ("Split", [], {"axis": -1, "outputs": 2}),
        ("SplitToSequence", [], {"axis": -1}),
        ("Gather", [np.array(-1)], {"axis": 2}),
        ("Concat", [], {"axis": 0}),
        ("Tile", [ints(1, 1, 1, 1)], {}),
        ("Pad", [ints(0, 0, 0, 0, 0, 0, -1, -1)], {}),
        ("CenterCropPad", [ints(2)], {"axes": (-1,)}),
        ("Dropout", [], {}),
    ],
)
def test_result_is_a_view(op: str, inputs: list[Any], attributes: dict[str, Any]) -> None:
    result = run(op, X, *inputs, **attributes)
    for part in result if isinstance(result, tuple | list) else [result]:
        assert np.shares_memory(part, X)


def sliced(x: Sequence[int], start: int, end: int, step: int) -> list[int]:
    n = len(x)
    start, end = (v + n if v < 0 else v for v in (start, end))
    first = min(max(start, 0), n if step > 0 else n - 1)
    last = min(max(end, 0 if step > 0 else -1), n if step > 0 else n - 1)
    return [x[i] for i in range(first, last, step)]


BOUNDS = st.integers(-9, 9) | st.sampled_from([2**63 - 1, -(2**63), 2**31 - 1, -(2**31)])


@given(st.integers(1, 6), BOUNDS, BOUNDS, st.integers(-4, 4).filter(bool))
def test_slice_clamps_as_specified(n: int, start: int, end: int, step: int) -> None:
    x = np.arange(n)
    assert run("Slice", x, *map(ints, (start, end, 0, step))).tolist() == sliced(
        x, start, end, step
    )


@given(ARRAYS, st.data())
def test_split_and_concat_round_trip(x: np.ndarray, data: st.DataObject) -> None:
    axis = data.draw(st.integers(-x.ndim, x.ndim - 1))
    cuts = data.draw(st.lists(st.integers(0, x.shape[axis]), max_size=3).map(sorted))
    lengths = np.diff([0, *cuts, x.shape[axis]])
    parts = run("Split", x, lengths, axis=axis, outputs=len(lengths))
    np.testing.assert_array_equal(run("Concat", *parts, axis=axis), x)


@given(ARRAYS, st.data(), st.sampled_from(["constant", "edge", "wrap", "reflect"]))
def test_negative_pads_undo_pads(x: np.ndarray, data: st.DataObject, mode: str) -> None:
    pads = np.array(
        data.draw(st.lists(st.integers(0, 4), min_size=2 * x.ndim, max_size=2 * x.ndim))
    )
    if mode == "reflect":
        pads = np.minimum(pads, np.tile(np.maximum(np.array(x.shape) - 1, 0), 2))
    wide = run("Pad", x, pads, mode=mode)
    assert wide.shape == tuple(np.add(x.shape, pads[: x.ndim] + pads[x.ndim :]))
    np.testing.assert_array_equal(run("Pad", wide, -pads), x)


@given(ARRAYS, st.data())
def test_tile_repeats(x: np.ndarray, data: st.DataObject) -> None:
    repeats = data.draw(st.lists(st.integers(0, 3), min_size=x.ndim, max_size=x.ndim))
    tiled = run("Tile", x, np.array(repeats))
    assert tiled.shape == tuple(np.multiply(x.shape, repeats))
    for place, value in np.ndenumerate(tiled):
        assert value == x[tuple(np.mod(place, x.shape))]


@given(ARRAYS, st.data())
def test_gather_elements_undoes_scatter_elements(x: np.ndarray, data: st.DataObject) -> None:
    axis = data.draw(st.integers(-x.ndim, x.ndim - 1))
    order = np.argsort(np.random.default_rng(0).random(x.shape), axis)
    order = np.where(order % 2, order - x.shape[axis], order)
    scattered = run("ScatterElements", np.zeros_like(x), order, x, axis=axis)
    np.testing.assert_array_equal(run("GatherElements", scattered, order, axis=axis), x)


@given(ARRAYS, st.data())
def test_gather_nd_undoes_scatter_nd(x: np.ndarray, data: st.DataObject) -> None:
    depth = data.draw(st.integers(1, x.ndim))
    indices = np.moveaxis(np.indices(x.shape[:depth]), 0, -1)[::-1]
    scattered = run("ScatterND", np.zeros_like(x), indices, x)
    np.testing.assert_array_equal(scattered, x[::-1])
    np.testing.assert_array_equal(run("GatherND", scattered, indices), x)


@given(ARRAYS, st.data(), st.booleans())
def test_unique_rebuilds_its_input(x: np.ndarray, data: st.DataObject, in_order: bool) -> None:
    axis = data.draw(st.none() | st.integers(-x.ndim, x.ndim - 1))
    y, first, inverse, counts = run("Unique", x, axis=axis, sorted=int(in_order), outputs=4)
    source = x.reshape(-1) if axis is None else x
    np.testing.assert_array_equal(np.take(y, inverse, axis or 0), source)
    np.testing.assert_array_equal(np.take(source, first, axis or 0), y)
    assert counts.sum() == source.shape[axis or 0]
    assert np.array_equal(counts, np.bincount(inverse))
    if not in_order:
        assert (np.diff(first) > 0).all()


@pytest.mark.parametrize("most", [1, 2, 1000, 2**40])
def test_unique_rows_are_numpys(most: int) -> None:
    x = np.random.default_rng(0).integers(-most, most, (300, 50))
    x[200:] = x[:100]
    for rows in (x, x[:, :3], x[:, :1]):
        y, first, inverse, counts = run("Unique", rows, axis=0, outputs=4)
        own = np.unique(rows, return_index=True, return_inverse=True, return_counts=True, axis=0)
        for found, expected in zip((y, first, inverse, counts), own, strict=True):
            np.testing.assert_array_equal(found, expected.reshape(found.shape))


@pytest.mark.parametrize(
    ("op", "inputs", "attributes", "message"),
    [
        ("Gather", [X, ints(0, 4)], {"axis": -1}, r"\[-4, 3\] along axis 3, found 4"),
        ("Gather", [X, np.array(-3)], {}, r"\[-2, 1\] along axis 0, found -3"),
        ("Gather", [X.T, ints(-5)], {}, r"\[-4, 3\] along axis 0, found -5"),
        ("GatherElements", [X[0, 0], np.array([[3]])], {}, r"\[-3, 2\] along axis 0, found 3"),
        (
            "GatherElements",
            [X, np.zeros((1, 2, 1, 1), int)],
            {},
            r"\(1, 2, 1, 1\) do not fit data of",
        ),
        ("GatherElements", [X, ints(0)], {}, r"\(1,\) do not fit data of"),
        ("GatherND", [X[0, 0], np.array([[0, 4]])], {}, r"\[-4, 3\] along axis 1, found 4"),
        ("GatherND", [X, np.zeros((1, 5), int)], {}, "tuples of 5 are too long"),
        ("ScatterND", [X[0, 0], ints(3), X[0, 0, 0]], {}, r"\[-3, 2\] along axis 0, found 3"),
        ("ScatterND", [X[0, 0], ints(0), X[0, 0]], {}, r"updates of shape \(4,\), found \(3, 4\)"),
        ("ScatterElements", [X, X[:1].astype(int), X], {}, "differ"),
        ("ScatterElements", [X, 0 * X.astype(int), X], {"reduction": "mean"}, "found mean"),
        ("TensorScatter", [X, X, ints(0, 1)], {}, "along axis 2, found 3"),
        ("Reshape", [X, ints(5, 5)], {}, "a shape of the 24 elements of data"),
        ("Reshape", [X, ints(0, -1)], {"allowzero": 1}, "both 0 and -1"),
        ("Reshape", [X[0, 0, 0], ints(2, 0)], {}, "does not have"),
        ("Flatten", [X], {"axis": 5}, r"outside \[-4, 4\]"),
        ("Split", [X, ints(1, 1)], {"axis": 2}, r"\[1, 1\] does not add up to the 3 of axis 2"),
        ("Slice", [X, ints(0, 0), ints(1)], {}, "the 2 starts"),
        ("Pad", [X, ints(1, 1)], {}, "begin and an end for 4 axes"),
        ("Pad", [X[0, 0, 0], ints(-3, -2)], {}, "remove more"),
        ("Tile", [X, ints(2)], {}, "one repeat for each axis"),
        ("DepthToSpace", [X], {"blocksize": 1, "mode": "RCD"}, "found RCD"),
        ("SequenceAt", [[X], np.array(1)], {}, r"\[-1, 0\], found 1"),
        ("SequenceInsert", [[X], X, np.array(2)], {}, r"\[-1, 1\], found 2"),
        ("SequenceErase", [[]], {}, r"\[0, -1\], found -1"),
        ("OptionalGetElement", [None], {}, "empty one"),
        ("ConstantOfShape", [ints(2**40, 2**20)], {}, "GiB are available"),
        ("ConstantOfShape", [ints(-1)], {}, "at least 0"),
        ("Range", [np.array(v) for v in (0, 2**60, 1)], {}, "GiB are available"),
        ("Range", [np.array(v) for v in (0, 1, 0)], {}, "other than 0"),
        ("Dropout", [X, np.array(1.0), np.array(True)], {}, r"\[0, 1\), found 1.0"),
        ("Constant", [], {"value_int": 1, "value_ints": (1,)}, "found 2"),
        ("StringNormalizer", [np.full((2, 2), "a", object)], {}, r"found \[2, 2\]"),
    ],
)
def test_errors_say_what_was_found(
    op: str, inputs: list[Any], attributes: dict[str, Any], message: str
) -> None:
    with pytest.raises((ValueError, MemoryError), match=message):
        run(op, *inputs, **attributes)
