"""Steps that copy what lies apart, or return nothing: captured in the first run as others are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from captured_models import only_replays
from onnx import TensorProto, helper
from running import captures, floats, require_kernels, session

from models import node
from tenonnx_cpu.capture import capturable

require_kernels()

N = 8
RECURRENT = {"w": floats(1, 3 * N, N, scale=0.3), "r": floats(1, 3 * N, N, seed=1, scale=0.3)}
LONG = {"w": floats(1, 4 * N, N, scale=0.3), "r": floats(1, 4 * N, N, seed=1, scale=0.3)}
SOME = {"w": floats(N, 6), "scale": floats(N, seed=2), "half": floats(N // 2, seed=3)}
ENDS = {"from": np.array([3]), "to": np.array([3]), "axis": np.array([1])}
TURNED = node("Transpose", "x", "t", perm=[1, 0, 2])
LAST = node("Transpose", "x", "t", perm=[0, 2, 1])
MODELS: dict[str, tuple[Sequence[Any], dict[str, Any]]] = {
    "gru": ([TURNED, node("GRU", "t w r", "y", hidden_size=N)], RECURRENT),
    "lstm": ([TURNED, node("LSTM", "t w r", "y", hidden_size=N)], LONG),
    "product": ([TURNED, node("MatMul", "t w", "y")], SOME),
    "norm": ([TURNED, node("LayerNormalization", "t scale", "y")], SOME),
    "joined axes": ([TURNED, node("Flatten", "t", "f", axis=2), node("Relu", "f", "y")], {}),
    "repeated": ([LAST, node("Add", "t column", "s"), node("Sigmoid", "s", "y")], {
        "column": floats(N, 1)
    }),
    "nothing": ([node("Slice", "x from to axis", "e"), node("Concat", "e x", "y", axis=1)], ENDS),
    "nothing at the end": ([node("Relu", "x", "q"), node("Slice", "q from to axis", "y")], ENDS),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_the_second_run_is_a_replay(name: str) -> None:
    nodes, weights = MODELS[name]
    feeds = {"x": floats(5, 3, N)}
    one = session(nodes, feeds, "y", weights, opset=23)
    wanted = uncaptured(nodes, weights, feeds)
    np.testing.assert_array_equal(one.run(None, feeds)[0], wanted)
    assert any(captures(one))
    with only_replays():
        for seed in range(3):
            feeds = {"x": floats(5, 3, N, seed=seed)}
            found = one.run(None, feeds)[0]
            np.testing.assert_array_equal(found, uncaptured(nodes, weights, feeds))


def test_a_plan_lies_where_an_earlier_copy_was() -> None:
    """A copy is freed after its step. The numbers of a convolution without bias have its size."""
    nodes = [
        node("Transpose", "x", "t", perm=[0, 2, 1, 3]),
        node("MatMul", "t w", "p"),
        helper.make_node("Conv", ["t", "kernel", ""], ["c"], pads=[1, 1, 1, 1]),
    ]
    weights = {"w": floats(6, 16), "kernel": floats(8, 4, 3, 3, seed=1)}
    for seed in range(5):
        feeds = {"x": floats(1, 3, 4, 6, seed=seed)}
        wanted = [
            session(nodes, feeds, "p c", weights, level=0).run(None, feeds)[n] for n in (0, 1)
        ]
        one = session(nodes, feeds, "p c", weights)
        for _ in range(3):
            for found, right in zip(one.run(None, feeds), wanted, strict=True):
                np.testing.assert_allclose(found, right, rtol=0, atol=1e-5)


@pytest.mark.parametrize(("operator", "sizes"), [("Split", (5, 4)), ("Split", (3, 3, 3))])
def test_parts_of_an_array_that_lies_apart(operator: str, sizes: tuple[int, ...]) -> None:
    names = " ".join(f"y{n}" for n in range(len(sizes)))
    nodes = [node("Transpose", "x", "t", perm=[1, 0, 2]), node(operator, "t sizes", names, axis=0)]
    feeds = {"x": floats(3, 9, N)}
    one = session(nodes, feeds, names, {"sizes": np.array(sizes)})
    wanted = np.split(feeds["x"].transpose(1, 0, 2), np.cumsum(sizes)[:-1])
    for _ in range(3):
        for found, right in zip(one.run(None, feeds), wanted, strict=True):
            np.testing.assert_array_equal(found, right)


@pytest.mark.parametrize("name", MODELS)
def test_other_lengths(name: str) -> None:
    """Each length, some of which come again; others are between the captured ones."""
    nodes, weights = MODELS[name]
    one = session(nodes, {"x": floats(5, 3, N)}, "y", weights, opset=23)
    for seed, length in enumerate([5, 6, 7, 8, 5, 12, 6, 40, 9, 9, 1, 1, 300]):
        feeds = {"x": floats(length, 3, N, seed=seed)}
        np.testing.assert_array_equal(one.run(None, feeds)[0], uncaptured(nodes, weights, feeds))


def test_a_mask_whose_keys_lie_apart() -> None:
    """Attention copies a mask that a Transpose returns, as exported T5 has it."""
    nodes = [
        node("Transpose", "x", "t", perm=[0, 1, 3, 2]),
        node("Attention", "q q q t", "y"),
    ]
    feeds = {"q": floats(2, 3, 6, 4), "x": floats(2, 3, 6, 6, seed=1)}
    one = session(nodes, feeds, "y", opset=23)
    first = one.run(None, feeds)[0]
    scores = 0.5 * feeds["q"] @ feeds["q"].swapaxes(2, 3) + feeds["x"].swapaxes(2, 3)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    wanted = weights / weights.sum(-1, keepdims=True) @ feeds["q"]
    np.testing.assert_allclose(first, wanted, rtol=1e-5, atol=1e-6)
    with only_replays():
        np.testing.assert_array_equal(one.run(None, feeds)[0], first)


def uncaptured(nodes: Sequence[Any], weights: dict[str, Any], feeds: dict[str, Any]) -> Any:
    """Return the result of a session that captures nothing."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(capturable, "COUNTED", False)
        return session(nodes, feeds, "y", weights, opset=23).run(None, feeds)[0]


@pytest.mark.parametrize("kind", ["UINT8", "INT8", "FLOAT"])
@pytest.mark.parametrize("columns", [5, 16, 20])
@pytest.mark.parametrize("rows", [1, 3])
def test_a_product_of_more_columns_than_it_returns(rows: int, columns: int, kind: str) -> None:
    """Memory is allocated for all that the kernel writes, not for what a node returns."""
    number = TensorProto.DataType.Value(kind)
    dtype = helper.tensor_dtype_to_np_dtype(number)
    taken = np.int8 if kind == "FLOAT" else dtype
    nodes = [
        node("DequantizeLinear", "x s z", "d"),
        node("DequantizeLinear", "w s", "e"),
        node("MatMul", "d e", "y" if kind == "FLOAT" else "p"),
    ]
    if kind != "FLOAT":
        nodes.append(node("QuantizeLinear", "p one z", "y"))
    codes = np.random.default_rng(0).integers(-9, 9, (12, columns)).astype(np.int8)
    weights = {"w": codes, "s": np.float32(0.125), "z": np.array(10, taken), "one": np.float32(1)}
    feeds = {"x": np.arange(rows * 12).reshape(rows, 12).astype(taken)}
    kinds = {"x": helper.np_dtype_to_tensor_dtype(np.dtype(taken)), "y": number}
    one = session(nodes, feeds, "y", weights, kinds=kinds)
    wanted = ((feeds["x"].astype(np.int64) - 10) @ codes) / 64
    if kind != "FLOAT":
        limits = np.iinfo(dtype)
        wanted = np.clip(np.round(wanted) + 10, limits.min, limits.max)
    for _ in range(3):
        (found,) = one.run(None, feeds)
        assert found.dtype == dtype
        np.testing.assert_array_equal(found, wanted)


CHANNELS = {"g": floats(7, seed=1), "h": floats(7, seed=2), "v": abs(floats(7, seed=3)) + 1}
APART = {
    "AveragePool": ("x", {"kernel_shape": [3, 3]}),
    "MaxPool": ("x", {"kernel_shape": [3, 3]}),
    "GlobalAveragePool": ("x", {}),
    "GlobalMaxPool": ("x", {}),
    "LpPool": ("x", {"kernel_shape": [3, 3]}),
    "InstanceNormalization": ("x g h", {}),
    "BatchNormalization": ("x g h g v", {}),
    "LRN": ("x", {"size": 3}),
    "Softmax": ("x", {"axis": 1}),
    "Gelu": ("x", {}),
    "LpNormalization": ("x", {"axis": 1}),
    "ReduceMean": ("x", {}),
}


@pytest.mark.parametrize("operator", APART)
def test_inputs_that_lie_apart_give_the_same_bits(operator: str) -> None:
    """Arrays that a program transposed, or spread without a copy, reach the kernel as well."""
    names, attributes = APART[operator]
    weights = {name: CHANNELS[name] for name in names.split()[1:]}
    spread = np.broadcast_to(floats(1, 9, 1, 7), (2, 9, 8, 7)).transpose(0, 3, 1, 2)
    turned = floats(2, 9, 8, 7).transpose(0, 3, 1, 2)
    one = session([node(operator, names, "y", **attributes)], {"x": turned}, "y", weights)
    for x in (spread, turned, spread, spread, turned):
        whole = one.run(None, {"x": np.ascontiguousarray(x)})[0]
        np.testing.assert_array_equal(one.run(None, {"x": x})[0], whole)
