"""Scan and SequenceMap: bodies that run over slices of tensors and elements of sequences."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from control_models import X, run

import tenonnx
from models import FLOAT, INT64, graph, model, node, value


@pytest.mark.parametrize("reverse", [0, 1])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_scan_axes_and_directions(axis: int, reverse: int) -> None:
    data = np.arange(12, dtype=np.float32).reshape(3, 4)
    length = data.shape[axis]
    item = [data.shape[1 - axis % 2]]
    inner = graph(
        [node("Add", "sum e", "total"), node("Identity", "total", "s")],
        [value("sum", FLOAT, item), value("e", FLOAT, item)],
        [value("total", FLOAT, item), value("s", FLOAT, item)],
    )
    scan = node(
        "Scan",
        "zero x",
        "y ys",
        body=inner,
        num_scan_inputs=1,
        scan_input_axes=[axis],
        scan_input_directions=[reverse],
        scan_output_axes=[axis],
        scan_output_directions=[reverse],
    )
    proto = model(
        [scan],
        [value("zero", FLOAT, item), value("x", FLOAT, list(data.shape))],
        [value("y"), value("ys")],
    )
    y, ys = run(proto, zero=np.zeros(item, np.float32), x=data)
    rows = np.moveaxis(data, axis, 0)
    sums = np.cumsum(rows[::-1] if reverse else rows, axis=0)
    expected = sums[::-1] if reverse else sums
    np.testing.assert_array_equal(y, sums[length - 1])
    np.testing.assert_array_equal(ys, np.moveaxis(expected, 0, axis))


def test_scan_over_words() -> None:
    words = onnx.TensorProto.STRING
    inner = graph(
        [node("StringConcat", "e e", "s")], [value("e", words, [])], [value("s", words, [])]
    )
    proto = model(
        [node("Scan", "x", "y", body=inner, num_scan_inputs=1)],
        [value("x", words, ["n"])],
        [value("y", words, ["n"])],
    )
    for given in (["a", "", "é"], []):
        (y,) = run(proto, x=np.array(given, object))
        assert y.tolist() == [2 * word for word in given]


def test_scan_inputs_of_different_lengths_are_refused() -> None:
    inner = graph(
        [node("Add", "e f", "s")], [value("e", FLOAT, []), value("f", FLOAT, [])], [value("s")]
    )
    proto = model(
        [node("Scan", "x z", "ys", body=inner, num_scan_inputs=2)],
        [value("x", FLOAT, [None]), value("z", FLOAT, [None])],
        [value("ys")],
    )
    with pytest.raises(tenonnx.RuntimeException, match=r"Scan 'ys'.*lengths: \[3, 4\]"):
        run(proto, x=X, z=X[:3])


def test_scan_8_runs_over_a_batch_of_sequences_of_different_length() -> None:
    inner = graph(
        [node("Add", "sum e", "total"), node("Identity", "total", "s")],
        [value("sum", FLOAT, [2]), value("e", FLOAT, [2])],
        [value("total", FLOAT, [2]), value("s", FLOAT, [2])],
    )
    proto = model(
        [node("Scan", "lengths zero x", "y ys", body=inner, num_scan_inputs=1)],
        [
            value("lengths", INT64, [2]),
            value("zero", FLOAT, [2, 2]),
            value("x", FLOAT, [2, 3, 2]),
        ],
        [value("y"), value("ys")],
        opset=8,
        ir_version=3,
    )
    x = np.arange(12, dtype=np.float32).reshape(2, 3, 2)
    y, ys = run(proto, lengths=np.array([3, 2]), zero=np.zeros((2, 2), np.float32), x=x)
    np.testing.assert_array_equal(y, [x[0].sum(0), x[1, :2].sum(0)])
    np.testing.assert_array_equal(ys[0], x[0].cumsum(0))
    np.testing.assert_array_equal(ys[1], [x[1, 0], x[1, 0] + x[1, 1], [0, 0]])


def test_scan_8_wants_batches_of_one_size() -> None:
    inner = graph(
        [node("Add", "sum e", "total")],
        [value("sum", FLOAT, [2]), value("e", FLOAT, [2])],
        [value("total", FLOAT, [2])],
    )
    proto = model(
        [node("Scan", "_ zero x", "y", body=inner, num_scan_inputs=1)],
        [value("zero", FLOAT, [None, 2]), value("x", FLOAT, [None, 3, 2])],
        [value("y")],
        opset=8,
        ir_version=3,
    )
    with pytest.raises(tenonnx.RuntimeException, match=r"batches of different sizes: \[1, 2\]"):
        run(proto, zero=np.zeros((2, 2), np.float32), x=np.zeros((1, 3, 2), np.float32))


def test_sequence_map_repeats_tensors_and_captures() -> None:
    inner = graph(
        [node("Add", "e t", "u"), node("Mul", "u x", "s")],
        [value("e", FLOAT, [4]), value("t", FLOAT, [4])],
        [value("s", FLOAT, [4])],
    )
    nodes = [
        node("SequenceConstruct", "x t", "q"),
        node("SequenceMap", "q t", "r", body=inner),
        node("ConcatFromSequence", "r", "y", axis=0, new_axis=1),
    ]
    proto = model(nodes, [value("x", FLOAT, [4]), value("t", FLOAT, [4])], [value("y")])
    (y,) = run(proto, x=X, t=2 * X)
    np.testing.assert_array_equal(y, [3 * X * X, 4 * X * X])
