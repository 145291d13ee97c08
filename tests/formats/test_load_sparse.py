"""Sparse tensors become dense weights."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import onnx
import pytest
from everywhere import (
    TP,
    fails,
    weight,
    weights_of,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from tenonnx.errors import InvalidGraph, InvalidProtobuf
from tenonnx.formats.load import load
from tenonnx.weights.registry import WeightRegistry


def sparse(name: str, values: Any, indices: Any, dims: list[int]) -> onnx.SparseTensorProto:
    return helper.make_sparse_tensor(
        numpy_helper.from_array(np.array(values, np.float32), name),
        numpy_helper.from_array(np.array(indices), name + "_indices"),
        dims,
    )


def sparse_model(tensor: onnx.SparseTensorProto) -> onnx.ModelProto:
    inner = helper.make_graph([], "inner", [], [])
    inner.sparse_initializer.append(tensor)
    node = helper.make_node("If", ["cond"], [], then_branch=inner, else_branch=inner)
    constant = helper.make_node("Constant", [], ["c"], sparse_value=tensor)
    graph = helper.make_graph(
        [node, constant, helper.make_node("Identity", ["s"], ["y"])],
        "g",
        [helper.make_tensor_value_info("cond", TP.BOOL, [])],
        [helper.make_tensor_value_info("y", TP.FLOAT, None)],
    )
    graph.sparse_initializer.append(tensor)
    return helper.make_model(graph)


@pytest.mark.parametrize("form", ["bytes", "proto"])
@pytest.mark.parametrize(
    ("indices", "dims"), [([1, 5], [6]), ([[0, 1], [1, 2]], [2, 3])], ids=["flat", "rows"]
)
def test_sparse_tensors_become_dense(
    registry: WeightRegistry, form: str, indices: Any, dims: list[int]
) -> None:
    proto = sparse_model(sparse("s", [7, 8], indices, dims))
    before = proto.SerializeToString()
    model = load(before if form == "bytes" else proto, registry)
    expected = np.array([0, 7, 0, 0, 0, 8]).reshape(dims)
    found = weights_of(model)
    assert len(found) == 4
    assert len(set(map(id, found))) == 1, "equal tensors are one weight"
    np.testing.assert_array_equal(found[0].array, expected)
    assert found[0].shape == tuple(dims)
    assert proto.SerializeToString() == before
    identity = list(model.graph)[-1]
    assert identity.inputs[0] is model.graph.initializers["s"]


def test_a_large_sparse_tensor_goes_to_a_side_file(registry: WeightRegistry) -> None:
    values, places = np.arange(1, 101), np.arange(100) * 1000
    model = load(sparse_model(sparse("s", values, places, [100_000])), registry)
    found = weight(model, "s")
    assert found.storage.kind == "derived"
    np.testing.assert_array_equal(found.array[::1000], values)
    assert np.count_nonzero(found.array) == 100


@pytest.mark.parametrize(
    ("indices", "dims", "message"),
    [
        ([6, 0], [6], "sparse tensor 's' has indices outside of its shape (6,)"),
        ([-1, 0], [6], "sparse tensor 's' has indices outside of its shape (6,)"),
        ([[0, 3], [0, 0]], [2, 3], "sparse tensor 's' has indices outside of its shape (2, 3)"),
        ([[0], [0]], [2, 3], "sparse tensor 's' has indices outside of its shape (2, 3)"),
        ([0, 1], [-6], "sparse tensor 's' needs flat values, int64 indices and a shape"),
        ([0, 1, 2], [6], "sparse tensor 's' has 2 values, but indices of shape (3,)"),
        ([0, 1], [1] * 65, f"sparse tensor 's', FLOAT{[1] * 65}, has no dense form: elements "
         "must be a byte or wider, and dimensions at most 64"),
    ],
)  # fmt: skip
def test_malformed_sparse_tensors(
    registry: WeightRegistry, indices: Any, dims: list[int], message: str
) -> None:
    proto = sparse_model(sparse("s", [7, 8], indices, dims))
    with pytest.raises(InvalidGraph) as caught:
        load(proto, registry)
    assert str(caught.value) == message


def test_a_sparse_tensor_that_would_fill_the_machine(registry: WeightRegistry) -> None:
    proto = sparse_model(sparse("s", [7, 8], [0, 1], [2**40, 2**40]))
    message = fails(proto, registry, InvalidGraph)
    assert message.startswith(f"sparse tensor 's' takes {2**82} bytes when dense; this machine has")


def test_a_few_bytes_do_not_become_gigabytes(registry: WeightRegistry) -> None:
    proto = sparse_model(sparse("s", [7], [0], [300_000_000]))
    message = fails(proto, registry, InvalidGraph)
    assert message.startswith("sparse tensor 's' takes 1,200,000,000 bytes when dense, and those")


def test_sparse_tensors_count_together(registry: WeightRegistry) -> None:
    proto = sparse_model(sparse("s", [7], [0], [1]))
    for number in range(40):
        one = sparse(f"s{number}", [number], [number], [500_000 + number])
        proto.graph.sparse_initializer.append(one)
    message = fails(proto, registry, InvalidGraph)
    assert message.startswith("sparse tensor 's33' takes 2,000,132 bytes when dense")


@settings(suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_sparse_tensors_are_what_they_say(registry: WeightRegistry, data: st.DataObject) -> None:
    dims = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    size = int(np.prod(dims))
    places = sorted(data.draw(st.sets(st.integers(0, size - 1))))
    values = np.arange(1, len(places) + 1)
    expected = np.zeros(size)
    expected[places] = values
    rows: Any = np.array(places, np.int64)
    if data.draw(st.booleans()):
        rows = np.stack(np.unravel_index(rows, dims), 1)
    model = load(sparse_model(sparse("s", values, rows, dims)), registry)
    np.testing.assert_array_equal(weight(model, "s").array, expected.reshape(dims))


@settings(max_examples=4 * settings().max_examples, suppress_health_check=list(HealthCheck))
@given(place=st.integers(0, 10**6), change=st.integers(1, 255))
def test_damaged_sparse_tensors(registry: WeightRegistry, place: int, change: int) -> None:
    damaged = bytearray(sparse_model(sparse("s", [7, 8], [1, 5], [6])).SerializeToString())
    damaged[place % len(damaged)] ^= change
    with contextlib.suppress(InvalidGraph, InvalidProtobuf):
        load(bytes(damaged), registry)
