"""The fold plug-in: constants are lifted, folded into views where that is possible, and shared."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tenonnx
from models import FLOAT, INT64, model, node, value

W = np.random.default_rng(0).standard_normal((48, 32), dtype=np.float32)
"""Above the size below which the loader copies a tensor."""


def folded(
    nodes: list[onnx.NodeProto], shape: list[int], tmp_path: Path, **weights: Any
) -> tenonnx.InferenceSession:
    proto = model(nodes, [value("x", FLOAT, shape)], [value("y")], {"w": W, **weights})
    path = tmp_path / "model.onnx"
    onnx.save(proto, path, save_as_external_data=True, size_threshold=64, location="data")
    return tenonnx.InferenceSession(path)


def constant_of(session: tenonnx.InferenceSession, shape: tuple[int, ...]) -> tenonnx.Weight:
    (weight,) = [w for w in session.weights if w.shape == shape]
    return weight


VIEWS: dict[str, tuple[list[onnx.NodeProto], dict[str, Any], np.ndarray[Any, Any]]] = {
    "Transpose": ([node("Transpose", "w", "v", perm=[1, 0])], {}, W.T),
    "Reshape": ([node("Reshape", "w s", "v")], {"s": np.array([32, 48])}, W.reshape(32, 48)),
    "Slice": (
        [node("Slice", "w b e a t", "v")],
        {
            "b": np.array([5]),
            "e": np.array([40]),
            "a": np.array([0]),
            "t": np.array([2]),
        },
        W[5:40:2],
    ),
    "chain": (
        [
            node("Unsqueeze", "w a", "u"),
            node("Transpose", "u", "t", perm=[2, 1, 0]),
            node("Squeeze", "t b", "v"),
        ],
        {"a": np.array([0]), "b": np.array([2])},
        W.T,
    ),
}


@pytest.mark.parametrize("name", VIEWS)
def test_folded_views_cost_nothing(name: str, tmp_path: Path) -> None:
    nodes, weights, expected = VIEWS[name]
    nodes = [*nodes, node("MatMul", "x v", "y")]
    session = folded(nodes, [2, expected.shape[0]], tmp_path, **weights)
    assert [n.op_type for n in session.model.graph] == ["MatMul"]
    weight = constant_of(session, expected.shape)
    mapped = tenonnx.default_registry().map(tmp_path / "data")
    assert np.shares_memory(weight.array, np.frombuffer(mapped.buffer, np.uint8))
    x = np.ones((2, expected.shape[0]), np.float32)
    np.testing.assert_allclose(session.run(None, {"x": x})[0], x @ expected, rtol=1e-4, atol=1e-5)


def test_folded_results_are_one_weight_for_all_sessions(tmp_path: Path) -> None:
    nodes = [node("Exp", "w", "e"), node("MatMul", "x e", "y")]
    sessions = [
        folded(nodes, [2, 48], tmp_path),
        tenonnx.InferenceSession(tmp_path / "model.onnx"),
    ]
    first, second = (constant_of(session, (48, 32)) for session in sessions)
    assert first is second
    np.testing.assert_allclose(first.array, np.exp(W), rtol=1e-6)
    assert not first.array.flags.writeable


def test_random_nodes_and_dequantization_are_left_alone(tmp_path: Path) -> None:
    nodes = [node("RandomNormalLike", "w", "r"), node("MatMul", "x r", "y")]
    session = folded(nodes, [2, 48], tmp_path)
    assert [n.op_type for n in session.model.graph] == ["RandomNormalLike", "MatMul"]


@pytest.mark.parametrize(("reader", "left"), [("LayerNormalization", 0), ("Mul", 1)])
def test_what_is_dequantized_for_norms_is_folded(reader: str, left: int, tmp_path: Path) -> None:
    nodes = [node("DequantizeLinear", "q t", "s"), node(reader, "x s", "y")]
    q, t = np.arange(48, dtype=np.uint8), np.array(0.5, np.float32)
    session = folded(nodes, [2, 48], tmp_path, q=q, t=t)
    assert [n.op_type for n in session.model.graph].count("DequantizeLinear") == left
    x = np.random.default_rng(1).standard_normal((2, 48), np.float32)
    (y,) = session.run(None, {"x": x})
    scaled = (x - x.mean(1, keepdims=True)) / x.std(1, keepdims=True) if left == 0 else x
    np.testing.assert_allclose(y, scaled * q * 0.5, rtol=1e-4, atol=1e-4)


def test_folding_that_would_fill_the_memory_is_left_to_the_run(tmp_path: Path) -> None:
    nodes = [node("Tile", "w n", "t"), node("ReduceSum", "t", "s"), node("Add", "x s", "y")]
    session = folded(nodes, [1, 1], tmp_path, n=np.array([64, 64]))
    assert "Tile" in [n.op_type for n in session.model.graph]
    (report,) = [r for r in session.transforms if r.name == "fold-constants"]
    assert "left Tile 't' (ai.onnx, opset 21) to the run: its result has 25,165,824 bytes" in str(
        report.notes
    )


def test_constants_that_double_are_left_to_the_run() -> None:
    """Of 40 doublings that 6 KiB ask for, folding makes those that have 64 MiB together."""
    chain = [node("Concat", f"v{i} v{i}", f"v{i + 1}", axis=0) for i in range(40)]
    nodes = [*chain, node("Shape", "v40", "s"), node("Add", "x s", "y")]
    proto = model(nodes, [value("x", INT64, [2])], [value("y", INT64)], {"v0": W})
    session = tenonnx.InferenceSession(proto)
    assert max(weight.nbytes for weight in session.weights) < 4 << 20
    (left,) = [r.notes for r in session.transforms if r.name == "fold-constants"]
    assert any("are folded" in note for note in left)


GROWING = {
    "a row and a column": ([node("Add", "c r", "b")], (1 << 14, 1), (1, 1 << 14)),
    "their product": ([node("MatMul", "c r", "b")], (1 << 14, 1), (1, 1 << 14)),
    "rows again and again": ([node("Gather", "c r", "b")], (1, 1 << 12), (1 << 17,)),
    "sums that double": (
        [
            node("Add", "c r", "d"),
            node("Transpose", "d", "t", perm=[1, 0]),
            node("Add", "d t", "b"),
        ],
        (1 << 13, 1),
        (1, 1 << 13),
    ),
}


@pytest.mark.parametrize(("nodes", "c", "r"), GROWING.values(), ids=GROWING)
def test_results_too_large_are_not_computed(nodes: Any, c: Any, r: Any, tmp_path: Path) -> None:
    kind = np.int64 if nodes[0].op_type == "Gather" else np.float32
    weights = {"c": np.zeros(c, np.float32), "r": np.zeros(r, kind)}
    rest = [node("ReduceSum", "b", "z"), node("Add", "x z", "y")]
    tracemalloc.start()
    try:
        folded([*nodes, *rest], [], tmp_path, **weights)
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()


def test_how_much_folding_may_add_is_an_option(tmp_path: Path) -> None:
    nodes = [node("Tile", "w n", "t"), node("ReduceSum", "t", "s"), node("Add", "x s", "y")]
    folded(nodes, [1, 1], tmp_path, n=np.array([2, 2]))
    options = tenonnx.SessionOptions()
    options.add_session_config_entry(
        "optimization.constant_folding_max_output_size_in_bytes", "1000"
    )
    session = tenonnx.InferenceSession(tmp_path / "model.onnx", options)
    assert "Tile" in [n.op_type for n in session.model.graph]


def test_errors_in_folding_are_left_to_the_run(tmp_path: Path) -> None:
    nodes = [node("Reshape", "w s", "v"), node("Add", "x v", "y")]
    session = folded(nodes, [1, 1], tmp_path, s=np.array([7, 7]))
    with pytest.raises(tenonnx.RuntimeException, match=r"Reshape 'v'"):
        session.run(None, {"x": np.ones((1, 1), np.float32)})


def test_a_weight_that_folding_left_unused_is_released(tmp_path: Path) -> None:
    nodes = [node("Exp", "w", "e"), node("MatMul", "x e", "y")]
    session = folded(nodes, [2, 48], tmp_path)
    assert [weight.shape for weight in session.weights] == [(48, 32)]
    assert str(tmp_path / "data") not in Path("/proc/self/maps").read_text()


def test_constant_nodes_of_every_kind_become_weights() -> None:
    attributes: dict[str, Any] = {
        "a": {"value": numpy_helper.from_array(W)},
        "b": {"value_float": 2.0},
        "c": {"value_ints": [48, 32]},
    }
    nodes = [helper.make_node("Constant", [], [name], **kw) for name, kw in attributes.items()]
    nodes += [
        node("Reshape", "x c", "r"),
        node("Mul", "r b", "m"),
        node("Add", "m a", "y"),
    ]
    session = tenonnx.InferenceSession(model(nodes, [value("x", FLOAT, [None])], [value("y")]))
    assert [n.op_type for n in session.model.graph] == ["Reshape", "Mul", "Add"]
    x = np.arange(48 * 32, dtype=np.float32)
    np.testing.assert_allclose(session.run(None, {"x": x})[0], x.reshape(48, 32) * 2 + W)


def test_an_output_may_be_a_constant(tmp_path: Path) -> None:
    session = folded([node("Transpose", "w", "y", perm=[1, 0])], [1], tmp_path)
    (y,) = session.run(None, {"x": np.ones(1, np.float32)})
    np.testing.assert_array_equal(y, W.T)
    assert not y.flags.writeable


def test_transforms_can_be_disabled_by_level_and_by_name(tmp_path: Path) -> None:
    nodes = [node("Transpose", "w", "v", perm=[1, 0]), node("MatMul", "x v", "y")]
    folded(nodes, [2, 32], tmp_path)
    path = tmp_path / "model.onnx"
    plain = tenonnx.SessionOptions(
        graph_optimization_level=tenonnx.GraphOptimizationLevel.ORT_DISABLE_ALL
    )
    some = tenonnx.SessionOptions(disabled_transforms=["fold-constants", "transposed-gemm"])
    for options, others in ((plain, False), (some, True)):
        session = tenonnx.InferenceSession(path, options)
        ran = {report.name for report in session.transforms}
        assert "fold-constants" not in ran
        assert ("lift-constants" in ran) == others
        assert [n.op_type for n in session.model.graph] == ["Transpose", "MatMul"]
    with pytest.raises(tenonnx.InvalidArgument, match="did you mean 'fold-constants'"):
        tenonnx.InferenceSession(
            path, tenonnx.SessionOptions(disabled_transforms=["fold-constant"])
        )


def test_shape_arithmetic_folds_away() -> None:
    nodes = [
        node("Add", "s s", "t"),
        node("Gather", "t i", "n", axis=0),
        node("Reshape", "x n", "y"),
    ]
    proto = model(
        nodes,
        [value("x", FLOAT, [None, None])],
        [value("y")],
        {"s": np.array([1, 2, 3]), "i": np.array([1, 2])},
    )
    session = tenonnx.InferenceSession(proto)
    assert [n.op_type for n in session.model.graph] == ["Reshape"]
    (y,) = session.run(None, {"x": np.arange(24, dtype=np.float32).reshape(2, 12)})
    assert y.shape == (4, 6)


BIG = np.random.default_rng(1).standard_normal((4096, 1024), dtype=np.float32)
"""16 MiB, which are folded a few at a time."""

HALVES = {"w": BIG[:, :512].copy(), "h": BIG[:, 512:].copy()}
COLUMN = np.random.default_rng(2).random((4096, 1)).astype(np.float32)
LARGE: dict[str, tuple[list[onnx.NodeProto], dict[str, Any], np.ndarray[Any, Any]]] = {
    "Mul by a row": ([node("Mul", "w r", "v")], {"w": BIG, "r": BIG[0]}, BIG * BIG[0]),
    "Sub from a column": ([node("Sub", "c w", "v")], {"w": BIG, "c": COLUMN}, COLUMN - BIG),
    "Where": (
        [node("Greater", "w c", "g"), node("Where", "g w c", "v")],
        {"w": BIG, "c": COLUMN},
        np.maximum(BIG, COLUMN),
    ),
    "one long row": (
        [node("Reshape", "w s", "f"), node("Neg", "f", "n"), node("Reshape", "n t", "v")],
        {"w": BIG, "s": np.array([1, -1]), "t": np.array(BIG.shape)},
        -BIG,
    ),
    "Transpose and Neg": (
        [node("Transpose", "w", "t", perm=[1, 0]), node("Neg", "t", "v")],
        {"w": BIG},
        -BIG.T,
    ),
    "Concat": ([node("Concat", "w h", "v", axis=-1)], HALVES, BIG),
    "Concat and Cast": (
        [node("Concat", "h w", "c", axis=0), node("Cast", "c", "v", to=TensorProto.FLOAT16)],
        HALVES,
        np.concatenate([BIG[:, 512:], BIG[:, :512]]).astype(np.float16),
    ),
}


@pytest.mark.parametrize("name", LARGE)
def test_large_results_are_never_in_private_memory(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENONNX_JIT", "0")  # compiling takes memory of its own
    nodes, weights, expected = LARGE[name]
    kind = helper.np_dtype_to_tensor_dtype(expected.dtype)
    last = node("Gather", "v x", "y")
    proto = model([*nodes, last], [value("x", INT64)], [value("y", kind)], weights)
    path = tmp_path / "model.onnx"
    onnx.save(proto, path, save_as_external_data=True, size_threshold=64, location="data")
    tenonnx.InferenceSession(model([node("Neg", "x", "y")], [value("x")], [value("y")]))
    tracemalloc.start()  # numpy tells it of its arrays
    try:
        session = tenonnx.InferenceSession(path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert [n.op_type for n in session.model.graph] == ["Gather"]
    np.testing.assert_array_equal(constant_of(session, expected.shape).array, expected)
    assert peak < 8 << 20


def test_weights_carried_through_a_loop_are_constants_in_it() -> None:
    halves = np.arange(8, dtype=np.float32).reshape(2, 4)
    states = [value("s", FLOAT, [4]), value("carried", FLOAT, [2, 4])]
    body = helper.make_graph(
        [
            node("Split", "carried", "up down", axis=0, num_outputs=2),
            node("Squeeze", "up zero", "flat"),
            node("Add", "s flat", "s2"),
            node("Identity", "carried", "same"),
            node("Identity", "same", "again"),
            node("Identity", "going", "on"),
        ],
        "body",
        [value("number", INT64, []), value("going", TensorProto.BOOL, []), *states],
        [value("on", TensorProto.BOOL), value("s2"), value("again")],
    )
    nodes = [
        node("Loop", "trips _ x halves", "y after", body=body),
        node("Neg", "after", "z"),
    ]
    weights = {"halves": halves, "trips": np.array(3), "zero": np.array([0])}
    proto = model(nodes, [value("x", FLOAT, [4])], [value("y"), value("z")], weights)
    session = tenonnx.InferenceSession(proto.SerializeToString())
    y, z = session.run(None, {"x": np.ones(4, np.float32)})
    np.testing.assert_array_equal(y, 1 + 3 * halves[0])
    np.testing.assert_array_equal(z, -halves)
    left = {each.op_type for step in session.plan.steps for each in step.nodes}
    assert left.isdisjoint({"Split", "Squeeze", "Neg"})


def test_a_state_that_is_a_graphs_output_stays_one() -> None:
    body = helper.make_graph(
        [node("Add", "s w", "s2"), node("Identity", "going", "on")],
        "body",
        [value("n", INT64, []), value("going", TensorProto.BOOL, []), value("s"), value("w")],
        [value("on", TensorProto.BOOL), value("s2"), value("w")],
    )
    nodes = [node("Loop", "trips _ x v", "y same", body=body)]
    proto = model(
        nodes,
        [value("x", FLOAT, [2]), value("v", FLOAT, [2])],
        [value("y"), value("same")],
        {"trips": np.array(2)},
    )
    session = tenonnx.InferenceSession(proto.SerializeToString())
    x, v = np.array([1, 2], np.float32), np.array([3, 5], np.float32)
    y, same = session.run(None, {"x": x, "v": v})
    np.testing.assert_array_equal(y, x + 2 * v)
    np.testing.assert_array_equal(same, v)
