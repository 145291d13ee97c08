"""Constants that do not fit a kernel are refused before anything is read."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from running import session
from test_trees import forest

from models import FLOAT, node
from tenonnx import errors
from tenonnx.planning import plan

UINT8 = onnx.TensorProto.UINT8
ML = {"ai.onnx.ml": 3}
FAR = [-1, -5, -(2**31), -(2**32), -(2**63), 2**31, 2**32, 2**63 - 1]

X = np.zeros((20, 4), np.float32)


def regressor(**changed: Any) -> Any:
    layer = node("TreeEnsembleRegressor", "x", "y", domain="ai.onnx.ml", **changed)
    return session([layer], {"x": X}, "y", domains=ML, kinds={"x": FLOAT})


@pytest.mark.parametrize("number", FAR)
@pytest.mark.parametrize(
    "name", ["nodes_featureids", "nodes_truenodeids", "nodes_falsenodeids", "target_ids"]
)
def test_ids_of_trees_that_lead_nowhere_are_refused(name: str, number: int) -> None:
    attributes = forest(3, 2, 4, ["BRANCH_LEQ"])
    attributes[name] = [number, *attributes[name][1:]]
    with pytest.raises(errors.EPFail, match=r"TreeEnsembleRegressor.*'y'.*(must be in|not listed)"):
        regressor(**attributes)


def test_a_feature_that_the_input_has_not_is_refused() -> None:
    attributes = forest(3, 2, 4, ["BRANCH_LEQ"])
    attributes["nodes_featureids"] = [4, *attributes["nodes_featureids"][1:]]
    one = regressor(**attributes)
    with pytest.raises(errors.RuntimeException, match="test feature 4, X has 4"):
        one.run(None, {"x": X})


@pytest.mark.parametrize(
    "name", [name for name in forest(3, 2, 4, ["BRANCH_LEQ"]) if name[1] != "_"]
)
@pytest.mark.parametrize("longer", [False, True])
def test_lists_of_trees_that_differ_in_length_are_refused(name: str, longer: bool) -> None:
    attributes = forest(3, 2, 4, ["BRANCH_LEQ"])
    values = attributes[name]
    attributes[name] = [*values, values[-1]] if longer else values[:-1]
    with pytest.raises(errors.EPFail, match=r"must have \d+ elements, found \d+"):
        regressor(**attributes)


@pytest.mark.parametrize("count", [1, 3])
def test_base_values_are_one_for_each_target(count: int) -> None:
    with pytest.raises(errors.EPFail, match=f"base_values must have 2 elements, found {count}"):
        regressor(**forest(3, 2, 4, ["BRANCH_LEQ"]), base_values=[1.0] * count)


def test_nodes_that_lead_to_each_other_alone_are_refused() -> None:
    attributes = forest(1, 2, 4, ["BRANCH_LEQ"])
    attributes["nodes_truenodeids"] = [0, *attributes["nodes_truenodeids"][1:]]
    with pytest.raises(errors.EPFail, match=r"cycle|root"):
        regressor(**attributes)


@pytest.mark.parametrize("group", [1, 2, 8], ids=["whole", "grouped", "depthwise"])
@pytest.mark.parametrize("side", [1, 3])
@pytest.mark.parametrize("shape", [(4,), (1,), (7,), (9,), (0,), (1, 8), (8, 1), ()])
def test_a_bias_of_bytes_has_one_number_for_each_channel(
    shape: tuple[int, ...], side: int, group: int
) -> None:
    one, zero = np.array(0.1, np.float32), np.array(3, np.uint8)
    constants = {
        "scale": one,
        "zero": zero,
        "w": np.ones((8, 8 // group, side, side), np.uint8),
        "b": np.ones(shape, np.int32),
    }
    x = np.zeros((1, 8, 5, 5), np.uint8)
    layer = node("QLinearConv", "x scale zero w scale zero scale zero b", "y", group=group)
    with pytest.raises(errors.TenonnxError, match=r"B .* has the shape .* M = 8"):
        session([layer], {"x": x}, "y", constants, kinds={"x": UINT8, "y": UINT8}).run(
            None, {"x": x}
        )


def test_dense_layers_that_do_not_follow_are_refused() -> None:
    """The second one has more rows than the first has columns: behind the first's results."""
    nodes = [node("Gemm", "x v", "a"), node("Relu", "a", "b"), node("Gemm", "b w", "y")]
    weights = {"v": np.ones((4, 8), np.float32), "w": np.ones((4000, 3), np.float32)}
    with pytest.raises(errors.TenonnxError, match="Gemm"):
        session(nodes, {"x": X}, "y", weights).run(None, {"x": X})


@pytest.mark.parametrize(("operator", "gates"), [("LSTM", 4), ("GRU", 3), ("RNN", 1)])
@pytest.mark.parametrize("length", [-1, 8, 1000, 2**31 - 1, -(2**31)])
@pytest.mark.parametrize("constant", [False, True])
def test_sequences_longer_than_the_input_are_refused(
    operator: str, gates: int, length: int, constant: bool
) -> None:
    x, lengths = np.ones((7, 2, 5), np.float32), np.array([7, 3], np.int32)
    weights = {
        "w": np.ones((1, gates * 3, 5), np.float32),
        "r": np.ones((1, gates * 3, 3), np.float32),
    }
    wrong = np.array([2, length], np.int32)
    feeds = {"x": x, "l": lengths}
    if constant:
        weights["l"] = wrong
        del feeds["l"]
    layer = node(operator, "x w r _ l", "y", hidden_size=3)
    one = session([layer], feeds, "y", weights, kinds={"l": onnx.TensorProto.INT32, "y": FLOAT})
    for _ in range(0 if constant else 5):
        one.run(None, feeds)
    with pytest.raises(errors.TenonnxError, match=r"sequence_lens must be in \[0, 7\]"):
        one.run(None, {"x": x} if constant else {"x": x, "l": wrong})


@pytest.mark.parametrize("size", [4, 0, -1, 2**31, 2**63 - 1])
def test_a_hidden_size_that_is_not_the_weights_is_refused(size: int) -> None:
    x = np.ones((7, 2, 5), np.float32)
    weights = {"w": np.ones((1, 12, 5), np.float32), "r": np.ones((1, 12, 3), np.float32)}
    with pytest.raises(errors.TenonnxError, match="hidden_size"):
        session([node("LSTM", "x w r", "y", hidden_size=size)], {"x": x}, "y", weights).run(
            None, {"x": x}
        )


def test_a_bias_for_each_row_is_none_for_each_column() -> None:
    """C of a square QGemm has as many numbers either way."""
    random = np.random.default_rng(0)
    a, b = random.integers(0, 255, (2, 20, 20)).astype(np.uint8)
    c = random.integers(-9999, 9999, (20, 1)).astype(np.int32)
    weights = {"s": np.array(0.1, np.float32), "z": np.array(3, np.uint8), "b": b, "c": c}
    layer = node("QGemm", "a s z b s z c", "y", domain="com.microsoft")
    kinds = {"a": UINT8, "y": FLOAT}
    one = session([layer], {"a": a}, "y", weights, kinds=kinds, domains={"com.microsoft": 1})
    expected = ((a.astype(np.float64) - 3) @ (b.astype(np.float64) - 3) + c) * 0.01
    np.testing.assert_allclose(one.run(None, {"a": a})[0], expected, rtol=1e-4)


@pytest.mark.parametrize("overlap", [-0.5, 1.5, np.nan])
def test_boxes_overlap_by_a_share(overlap: float) -> None:
    feeds = {"b": np.ones((1, 5, 4), np.float32), "s": np.ones((1, 1, 5), np.float32)}
    weights = {"n": np.array([3]), "o": np.array([overlap], np.float32)}
    one = session([node("NonMaxSuppression", "b s n o", "y")], feeds, "y", weights, kinds={"y": 7})
    with pytest.raises(errors.TenonnxError, match=r"iou_threshold must be in \[0, 1\]"):
        one.run(None, feeds)


def test_an_output_that_no_memory_holds_is_refused() -> None:
    """A view that repeats its elements is larger than anything that was allocated."""
    output = np.broadcast_to(np.float32(1), (1 << 40, 1 << 12))
    with pytest.raises(errors.OutOfMemory, match="more memory than there is"):
        plan._settle(output, [output], [])
