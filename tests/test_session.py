"""The session's API: signature, input checks, options, threads."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto

import tenonnx
from models import FLOAT, INT64, model, node, value

X = np.array([[1, -2, 3], [4, 5, 6]], np.float32)
W = np.arange(12, dtype=np.float32).reshape(3, 4)


@pytest.fixture
def session() -> tenonnx.InferenceSession:
    proto = model(
        [node("MatMul", "x w", "h"), node("Relu", "h", "y"), node("Shape", "h", "s")],
        [value("x", FLOAT, ["batch", 3])],
        [value("y", FLOAT, ["batch", 4]), value("s", INT64, [2])],
        {"w": W},
    )
    return tenonnx.InferenceSession(proto, providers=["CPUExecutionProvider"])


def test_inputs_and_outputs_are_described_as_onnxruntime_does(
    session: tenonnx.InferenceSession,
) -> None:
    (x,) = session.get_inputs()
    assert (x.name, x.type, x.shape) == ("x", "tensor(float)", ["batch", 3])
    assert [(o.name, o.type, o.shape) for o in session.get_outputs()] == [
        ("y", "tensor(float)", ["batch", 4]),
        ("s", "tensor(int64)", [2]),
    ]
    assert session.get_providers() == ["CPUExecutionProvider"]


def test_an_input_that_is_an_output_keeps_the_type_it_has_as_an_input() -> None:
    x = value("x", FLOAT, ["n", 8])
    proto = model([node("Neg", "x", "y")], [x], [value("y"), onnx.ValueInfoProto(name="x")])
    session = tenonnx.InferenceSession(proto)
    for arg in (*session.get_inputs(), session.get_outputs()[1]):
        assert (arg.name, arg.type, arg.shape) == ("x", "tensor(float)", ["n", 8])


def test_run_returns_the_outputs_asked_for_in_that_order(session: tenonnx.InferenceSession) -> None:
    y, s = session.run(None, {"x": X})
    np.testing.assert_allclose(y, np.maximum(X @ W, 0))
    np.testing.assert_array_equal(s, [2, 4])
    assert [o.shape for o in session.run(["s", "y"], {"x": X})] == [(2,), (2, 4)]
    assert len(session.run([], {"x": X})) == 2


@pytest.mark.parametrize(
    ("feeds", "message"),
    [
        ({}, r"input 'x' is missing: expected tensor\(float\) of shape \['batch', 3\]"),
        ({"y": X}, r"no input 'y' \(there are: x\)"),
        ({"x": X, "X": X}, "no input 'X'; did you mean 'x'"),
        ({"x": X.astype(np.float64)}, r"'x': expected tensor\(float\).*got dtype float64"),
        ({"x": X[0]}, r"'x': .*got rank 1 \(shape \[3\]\)"),
        ({"x": X[:, :2]}, r"'x': .*got shape \[2, 2\]"),
        ({"x": None}, "'x': .*got None"),
        ({"x": [["a", "b", "c"]]}, "'x': .*got list that is no such array"),
        (X, "the inputs are ndarray; expected a dict of arrays by name\nHint: .*{'x': x}"),
    ],
)
def test_wrong_inputs(session: tenonnx.InferenceSession, feeds: Any, message: str) -> None:
    with pytest.raises(tenonnx.InvalidArgument, match=message):
        session.run(None, feeds)
    session.run(None, {"x": X})


def test_wrong_output_name(session: tenonnx.InferenceSession) -> None:
    with pytest.raises(tenonnx.InvalidArgument, match="no output 'Y'; did you mean 'y'"):
        session.run(["Y"], {"x": X})


@pytest.mark.parametrize(
    "x",
    [X.tolist(), X.astype(">f4"), np.asfortranarray(X), np.repeat(X, 2, 1)[:, ::2]],
    ids=["nested lists", "big-endian", "Fortran order", "strided"],
)
def test_inputs_as_callers_have_them(session: tenonnx.InferenceSession, x: Any) -> None:
    np.testing.assert_allclose(session.run(["y"], {"x": x})[0], np.maximum(X @ W, 0))


def test_none_counts_as_not_passed() -> None:
    proto = model(
        [node("Add", "x w", "y")],
        [value("x", FLOAT, [3]), value("w", FLOAT, [3])],
        [value("y", FLOAT, [3])],
        {"w": np.ones(3, np.float32)},
    )
    x = np.arange(3, dtype=np.float32)
    feeds: dict[str, Any] = {"x": x, "w": None, "other": None}
    content = proto.SerializeToString()
    onnxruntime = pytest.importorskip("onnxruntime")
    for made in (onnxruntime.InferenceSession, tenonnx.InferenceSession):
        session = made(content, providers=["CPUExecutionProvider"])
        for _ in range(4):  # captured, and replayed
            assert session.run(None, feeds)[0].tolist() == [1, 2, 3]
            with pytest.raises(Exception, match=r"'x': .*got None|Missing Input: x"):
                session.run(None, {"x": None, "w": x})


def test_strings_come_in_any_numpy_form() -> None:
    proto = model(
        [node("StringConcat", "x x", "y")],
        [value("x", TensorProto.STRING, ["n"])],
        [value("y", TensorProto.STRING, ["n"])],
    )
    session = tenonnx.InferenceSession(proto)
    for given in (np.array(["a", "é"]), np.array(["a", "é"], object), ["a", "é"]):
        (y,) = session.run(None, {"x": given})
        assert y.tolist() == ["aa", "éé"]


def test_inputs_with_a_value_may_be_overridden() -> None:
    proto = model(
        [node("Add", "x w", "y")],
        [value("x", FLOAT, [3]), value("w", FLOAT, [3])],
        [value("y", FLOAT, [3])],
        {"w": W[:, 0].copy()},
    )
    session = tenonnx.InferenceSession(proto)
    assert [arg.name for arg in session.get_inputs()] == ["x"]
    assert [arg.name for arg in session.get_overridable_initializers()] == ["w"]
    x = X[0]
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], x + W[:, 0])
    np.testing.assert_array_equal(session.run(None, {"x": x, "w": x})[0], x + x)


def test_before_ir_4_initializers_among_the_inputs_are_constants() -> None:
    proto = model(
        [node("Add", "x w", "y")],
        [value("x", FLOAT, [3]), value("w", FLOAT, [3])],
        [value("y", FLOAT, [3])],
        {"w": W[:, 0].copy()},
        opset=8,
        ir_version=3,
    )
    session = tenonnx.InferenceSession(proto)
    assert session.get_overridable_initializers() == []
    assert len(session.weights) <= 1


def test_outputs_never_alias_inputs() -> None:
    proto = model(
        [node("Identity", "x", "y"), node("Transpose", "x", "z")],
        [value("x", FLOAT, [2, 3])],
        [value("y"), value("z")],
    )
    x = X.copy()
    y, z = tenonnx.InferenceSession(proto).run(None, {"x": x})
    assert not np.shares_memory(x, y)
    assert not np.shares_memory(x, z)
    y[:] = z.T[:] = 0
    np.testing.assert_array_equal(x, X)


def test_a_node_that_fails_is_named_and_the_session_goes_on() -> None:
    proto = model(
        [node("Add", "x z", "y", name="sum")],
        [value("x", FLOAT, ["n"]), value("z", FLOAT, ["m"])],
        [value("y")],
    )
    session = tenonnx.InferenceSession(proto)
    one, two = np.ones(2, np.float32), np.ones(3, np.float32)
    with pytest.raises(tenonnx.RuntimeException, match=r"Add 'sum' \(ai.onnx, opset 21\)"):
        session.run(None, {"x": one, "z": two})
    np.testing.assert_array_equal(session.run(None, {"x": one, "z": one})[0], [2, 2])


@pytest.mark.parametrize(
    ("providers", "message"),
    [
        (["CUPExecutionProvider"], "unknown provider.*did you mean 'CPUExecutionProvider'"),
        ([("cpu", {"thread": 1})], "CPUExecutionProvider has no option 'thread'"),
        ("cpu", r"pass a list: providers=\['cpu'\]"),
        ([3], r"providers\[0\] is 3; expected a name"),
    ],
)
def test_wrong_providers(providers: Any, message: str) -> None:
    proto = model([node("Relu", "x", "y")], [value("x")], [value("y")])
    with pytest.raises(tenonnx.InvalidArgument, match=message):
        tenonnx.InferenceSession(proto, providers=providers)


def test_unknown_options_are_refused() -> None:
    options = tenonnx.SessionOptions()
    with pytest.raises(AttributeError, match="did you mean 'intra_op_num_threads'"):
        options.intra_op_threads = 3  # type: ignore[attr-defined]


def test_threads_run_one_session_while_others_build_sessions(tmp_path: Path) -> None:
    weights = {f"w{i}": np.full((64, 64), i + 1, np.float32) for i in range(4)}
    nodes = [node("MatMul", f"x{i} w{i}", f"x{i + 1}") for i in range(4)]
    proto = model(nodes, [value("x0", FLOAT, ["n", 64])], [value("x4")], weights)
    path = tmp_path / "model.onnx"
    onnx.save(proto, path, save_as_external_data=True, size_threshold=0, location="data")
    session = tenonnx.InferenceSession(path)
    registry = tenonnx.default_registry()
    start = threading.Barrier(24)

    def run(seed: int) -> None:
        x = np.random.default_rng(seed).integers(0, 3, (seed + 1, 64)).astype(np.float32)
        expected = x @ weights["w0"] @ weights["w1"] @ weights["w2"] @ weights["w3"]
        start.wait()
        for _ in range(20):
            np.testing.assert_allclose(session.run(None, {"x0": x})[0], expected, rtol=1e-5)

    def build(_: int) -> tenonnx.InferenceSession:
        start.wait()
        return [tenonnx.InferenceSession(path) for _ in range(3)][-1]

    with ThreadPoolExecutor(24) as pool:
        runs = [pool.submit(run, seed) for seed in range(16)]
        built = [pool.submit(build, i).result for i in range(8)]
        for future in runs:
            future.result()
        others = [result() for result in built]
    ours = {weight.storage for weight in session.weights}
    assert all({weight.storage for weight in other.weights} == ours for other in others)
    assert len(ours) == 1
    assert registry.map(tmp_path / "data") in ours
