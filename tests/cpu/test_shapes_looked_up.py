"""Values that depend on shapes alone are computed once; steps that read them are captured."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from running import floats, require_kernels, session

from models import node
from tenonnx_cpu.capture.launch import fix, is_fixed

require_kernels()

WEIGHTS = {
    "zero": np.array(0),
    "one": np.array(1),
    "axis": np.array([0]),
    "rest": np.array([-1]),
    "half": np.array([2]),
    "three": np.array(3),
}
HALVES = [
    node("Shape", "x", "shape"),
    node("Gather", "shape zero", "rows"),
    node("Gather", "shape one", "columns"),
    node("Unsqueeze", "rows axis", "rows1"),
    node("Div", "columns half", "wide"),
    node("Concat", "rows1 half wide", "split", axis=0),
    node("Reshape", "x split", "halves"),
    node("Slice", "x zeros wide ones", "left"),
    node("Relu", "left", "y"),
    node("Sigmoid", "halves", "z"),
]


def opened() -> Any:
    weights = {**WEIGHTS, "zeros": np.array([0]), "ones": np.array([1])}
    return session(HALVES, {"x": floats(3, 8)}, "y z", weights)


def captures(one: Any) -> list[int]:
    cells = [getattr(step.call, "__self__", ()) for step in one.plan.program.block.items]
    return [len(cell) // 2 - 1 for cell in cells if isinstance(cell, list)]


def test_views_of_computed_shapes() -> None:
    one = opened()
    for seed, (rows, columns) in enumerate([(3, 8)] * 5 + [(1, 2)] * 5 + [(3, 8), (5, 6), (1, 2)]):
        x = floats(rows, columns, seed=seed)
        y, z = one.run(None, {"x": x})
        np.testing.assert_array_equal(y, np.maximum(x[:, : columns // 2], 0))
        expected = 1 / (1 + np.exp(-x.astype(np.float64).reshape(rows, 2, columns // 2)))
        np.testing.assert_allclose(z, expected, rtol=1e-6)
    kinds = [step.nodes[0].op_type for step in one.plan.steps]
    assert kinds.count("Shape") == 1
    assert "Gather" not in kinds
    assert captures(one) == [2], "all of it"


def test_what_is_given_out_can_be_written() -> None:
    nodes = [node("Shape", "x", "shape"), node("Mul", "shape half", "twice")]
    nodes += [node("Add", "twice half", "y"), node("Shape", "x", "z")]
    kinds = {"x": 1, "y": 7, "z": 7}
    one = session(nodes, {"x": floats(3, 8)}, "y z", WEIGHTS, kinds=kinds)
    for _ in range(5):
        y, z = one.run(None, {"x": floats(3, 8)})
        np.testing.assert_array_equal(y, [8, 18])
        np.testing.assert_array_equal(z, [3, 8])
        y += 1
        z += 1


def test_pieces_of_a_sequence() -> None:
    nodes = [
        node("Shape", "x", "shape", start=1),
        node("Div", "shape three", "third"),
        node("Expand", "third three1", "split"),
        node("SplitToSequence", "x split", "pieces", axis=1),
        node("SequenceAt", "pieces zero", "a"),
        node("Neg", "a", "b"),
        node("SequenceAt", "pieces rest0", "c"),
        node("Add", "b c", "y"),
    ]
    weights = {**WEIGHTS, "three1": np.array([3]), "rest0": np.array(-1)}
    one = session(nodes, {"x": floats(4, 9)}, "y", weights)
    for width in (9, 9, 9, 9, 12, 3, 9):
        x = floats(4, width, seed=width)
        third = width // 3
        np.testing.assert_array_equal(one.run(None, {"x": x})[0], x[:, -third:] - x[:, :third])
    kinds = [step.nodes[0].op_type for step in one.plan.steps]
    assert kinds.count("SplitToSequence") == 1
    assert "SequenceAt" not in kinds


def test_a_place_that_a_sequence_has_not() -> None:
    nodes = [
        node("SplitToSequence", "x three", "pieces", axis=0),
        node("SequenceAt", "pieces three", "a"),
        node("Neg", "a", "y"),
    ]
    one = session(nodes, {"x": floats(4, 2)}, "y", WEIGHTS)
    with pytest.raises(Exception, match="SplitToSequence"):
        one.run(None, {"x": floats(4, 2)})
    np.testing.assert_array_equal(one.run(None, {"x": floats(12, 2)})[0], -floats(12, 2)[9:])


def test_fixed_arrays_are_copies_that_are_known() -> None:
    source = np.arange(3)
    array = fix(source)
    assert is_fixed(array)
    assert not is_fixed(source)
    assert not is_fixed(array[:])
    assert not array.flags.writeable
    source[0] = 9
    np.testing.assert_array_equal(array, [0, 1, 2])
