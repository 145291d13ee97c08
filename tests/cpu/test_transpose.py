"""Transpose on a kernel is numpy's, and only where a reader would copy what it makes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from running import Watch, captures, floats, run, session

from models import node
from tenonnx_cpu.data_movement.ordered_copies import TRANSPOSE, cut_of

LENGTHS = st.sampled_from([1, 2, 3, 4, 7, 16, 17, 33, 40])


@settings(max_examples=150, deadline=None)
@given(
    data=st.data(),
    threads=st.sampled_from([1, 4]),
    dtype=st.sampled_from([np.uint8, np.float16, np.float32, np.int64]),
)
def test_every_order_of_axes_is_written(data: st.DataObject, threads: int, dtype: Any) -> None:
    shape = data.draw(st.lists(LENGTHS, min_size=2, max_size=5))
    order = data.draw(st.permutations(range(len(shape))))
    x = np.random.default_rng(0).integers(0, 200, shape).astype(dtype)
    step = data.draw(st.sampled_from([1, 2]))
    y = x[::step].transpose(order)
    cut = cut_of(y.shape, y.strides, y.itemsize, threads)
    if cut is None:
        return
    made = np.full(y.size, 255, dtype)
    assert TRANSPOSE.run is not None
    bytes_of = x.reshape(-1).view(np.uint8), made.view(np.uint8)
    TRANSPOSE.run(*bytes_of, cut.numbers, cut.threads)
    assert np.array_equal(made.reshape(y.shape), y)


def test_reversed_and_repeated_elements_are_left_to_numpy() -> None:
    x = np.zeros((4, 8), np.float32)
    assert cut_of(x[:, ::-1].shape, x[:, ::-1].strides, 4, 1) is None
    assert cut_of((4, 8), (0, 4), 4, 1) is None


def copied(x: Any) -> Any:
    return x.T.reshape(96, 32) @ np.ones((32, 2), np.float32)


def viewed(x: Any) -> Any:
    return x.T.reshape(48, 2, 32) @ np.ones((32, 2), np.float32)


@pytest.mark.parametrize(
    ("readers", "expected", "calls"),
    [
        ([node("Relu", "y", "z")], lambda x: np.maximum(x.T, 0), 1),
        ([node("Flatten", "y", "f"), node("Neg", "f", "z")], lambda x: -x.T, 1),
        ([node("MatMul", "y x", "z")], lambda x: x.T @ x, 0),
        ([node("Slice", "y o t", "z")], lambda x: x.T[:40], 1),
        ([node("Slice", "y o t", "s"), node("Exp", "s", "z")], lambda x: np.exp(x.T[:40]), 1),
        ([node("Gather", "y i", "s"), node("Neg", "s", "z")], lambda x: -x.T[3], 1),
        ([node("Gather", "y i2", "s"), node("Neg", "s", "z")], lambda x: -x.T[[3, 4]], 0),
        ([node("Reshape", "y n", "s"), node("MatMul", "s n2", "z")], copied, 1),
        # The product of a view whose rows lie apart copies it itself.
        ([node("Reshape", "y m", "s"), node("MatMul", "s n2", "z")], viewed, 1),
    ],
    ids=[
        "elementwise",
        "behind a view",
        "product",
        "slice",
        "behind a slice",
        "behind one",
        "some",
        "copy",
        "view",
    ],
)
def test_who_reads_it_decides(
    readers: list[Any], expected: Any, calls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = Watch(TRANSPOSE, monkeypatch)
    x = floats(64, 48)
    nodes = [node("Transpose", "x", "y", perm=[1, 0]), *readers]
    weights = {"o": np.array([0]), "t": np.array([40]), "n2": np.ones((32, 2), np.float32)}
    weights |= {"i": np.array(3), "i2": np.array([3, 4])}
    weights |= {"n": np.array([96, 32]), "m": np.array([48, 2, 32])}
    z = run(nodes, {"x": x}, "z", weights, threads=2, shapes={"x": [64, 48]})
    np.testing.assert_allclose(z, expected(x), rtol=1e-5, atol=1e-5)
    assert kernel.calls == calls


APART = {
    "transposed, joined": [
        node("Transpose", "x", "t", perm=[0, 2, 1, 3]), node("Reshape", "t rows", "j"),
    ],
    "sliced, joined": [node("Slice", "x o e last", "t"), node("Flatten", "t", "j")],
    "transposed": [node("Transpose", "x", "j", perm=[0, 1, 3, 2])],
}  # fmt: skip


@pytest.mark.parametrize("steps", APART.values(), ids=APART)
@pytest.mark.parametrize("size", [3, 40])
def test_what_lies_apart_is_put_in_order_in_the_run(steps: list[Any], size: int) -> None:
    x = floats(2, 4, size, 6)
    weights = {"rows": np.array([0, size, 24]), "o": np.array([1]), "e": np.array([5])}
    weights |= {"last": np.array([3]), "two": np.float32([2])}
    nodes = [node("Neg", "x", "x0"), *steps, node("Div", "j two", "y")]
    one = session(nodes, {"x": x}, "y", weights)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TENONNX_JIT", "0")
        wanted = session(nodes, {"x": x}, "y", weights).run(None, {"x": x})
    for _ in range(3):
        np.testing.assert_array_equal(one.run(None, {"x": x}), wanted)
    assert captures(one) == [1]


def test_all_of_a_split_in_one_part_leaves_the_graph() -> None:
    x = floats(5, 7)
    nodes = [node("Transpose", "x", "t"), node("Split", "t", "y", axis=0, num_outputs=1)]
    np.testing.assert_array_equal(run(nodes, {"x": x}, "y"), x.T)
