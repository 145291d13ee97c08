"""Models that never end, or that are built to break whoever opens them."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper

import tenonnx
from clocks import collector_off
from models import BOOL, FLOAT, INT64, graph, model, node, value

X = np.ones(4, np.float32)
SOON = 5.0
"""Seconds of computing after which a test has failed."""


def endless_loop(op: str = "Neg") -> onnx.ModelProto:
    body = graph(
        [node(op, "a", "b"), node("Identity", "on", "go")],
        [value("i", INT64, []), value("on", BOOL, []), value("a")],
        [value("go", BOOL, []), value("b")],
    )
    return model([node("Loop", "_ _ x", "y", body=body)], [value("x")], [value("y")])


def long_chain() -> onnx.ModelProto:
    nodes = [node("MatMul", f"v{i} v{i}", f"v{i + 1}") for i in range(2000)]
    return model(nodes, [value("v0", FLOAT, [None, None])], [value("v2000", FLOAT, [None, None])])


def nested_loops() -> onnx.ModelProto:
    """Ten thousand iterations of ten thousand iterations."""
    proto = endless_loop()
    inner = proto.graph.node[0]
    inner.input[0] = "n"
    inner.input[2], inner.output[0] = "a2", "b2"
    body = graph(
        [inner, node("Identity", "on2", "go2")],
        [value("j", INT64, []), value("on2", BOOL, []), value("a2")],
        [value("go2", BOOL, []), value("b2")],
    )
    return model(
        [node("Loop", "n _ x", "y", body=body)],
        [value("x")],
        [value("y")],
        {"n": np.array(10_000)},
    )


ENDLESS = {
    "a loop": (endless_loop(), {"x": X}),
    "loops in loops": (nested_loops(), {"x": X}),
    "a chain": (long_chain(), {"v0": np.eye(600, dtype=np.float32)}),
}


def limited(proto: Any, seconds: float | None) -> tenonnx.InferenceSession:
    """Open a model whose runs alone have a limit: loading may take longer on a busy machine."""
    session = tenonnx.InferenceSession(proto)
    session._options.time_limit = seconds
    return session


def test_a_time_limit_ends_loading_and_names_the_stage() -> None:
    nodes = [node("Neg", f"v{i}", f"v{i + 1}") for i in range(20_000)]
    proto = model(nodes, [value("v0")], [value("v20000")])
    start = time.process_time()
    with pytest.raises(tenonnx.Fail, match=r"loading was stopped while .*: it takes longer than"):
        tenonnx.InferenceSession(proto, tenonnx.SessionOptions(time_limit=0.02))
    assert time.process_time() - start < SOON


def test_cancelling_stops_a_load_that_goes_on() -> None:
    nodes = [node("Neg", f"v{i}", f"v{i + 1}") for i in range(20_000)]
    proto, options = model(nodes, [value("v0")], [value("v20000")]), tenonnx.SessionOptions()
    threading.Timer(0.05, options.set_load_cancellation_flag, [True]).start()
    start = time.process_time()
    with pytest.raises(tenonnx.ModelLoadCanceled):
        tenonnx.InferenceSession(proto, options)
    assert time.process_time() - start < SOON


@pytest.mark.parametrize("name", ENDLESS)
def test_a_time_limit_ends_a_run(name: str) -> None:
    proto, feeds = ENDLESS[name]
    session = limited(proto, 0.1)
    start = time.process_time()
    for _ in range(2):
        with pytest.raises(tenonnx.Fail, match=r"takes longer than 0\.1 s"):
            session.run(None, feeds)
    assert time.process_time() - start < SOON


def test_a_time_limit_counts_for_every_run_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    passed, clock = 0.0, time.perf_counter
    monkeypatch.setattr(time, "perf_counter", lambda: clock() + passed)
    session = limited(model([node("Neg", "x", "y")], [value("x")], [value("y")]), 200)
    for _ in range(3):
        passed += 100
        np.testing.assert_array_equal(session.run(None, {"x": X})[0], -X)


def test_a_time_limit_holds_for_bindings_and_run_options() -> None:
    session = limited(endless_loop(), 0.05)
    binding = session.io_binding()
    binding.bind_cpu_input("x", X)
    binding.bind_output("y")
    with pytest.raises(tenonnx.Fail, match="takes longer"):
        session.run_with_iobinding(binding)
    with pytest.raises(tenonnx.Fail, match="takes longer"):
        session.run(None, {"x": X}, tenonnx.RunOptions())


def test_without_a_time_limit_nothing_watches() -> None:
    session = limited(endless_loop(), None)
    assert session.get_session_options().time_limit is None
    assert "observe" not in session.plan.source


def nested_ifs(depth: int) -> ir.Model:
    x = ir.Value(name="x", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape([None]))
    c = ir.Value(name="c", type=ir.TensorType(ir.DataType.BOOL), shape=ir.Shape([]))

    def graph_of(node: ir.Node) -> ir.Graph:
        return ir.Graph([], node.outputs, nodes=[node])

    top = ir.node("Neg", [x])
    for _ in range(depth):
        branches = {"then_branch": graph_of(top), "else_branch": graph_of(ir.node("Abs", [x]))}
        top = ir.node("If", [c], branches)
    top.outputs[0].name = "y"
    graph = ir.Graph([c, x], top.outputs, nodes=[top], opset_imports={"": 21})
    return ir.Model(graph, ir_version=10)


def test_deep_nesting() -> None:
    session = tenonnx.InferenceSession(nested_ifs(60))
    np.testing.assert_array_equal(session.run(None, {"c": np.array(True), "x": X})[0], -X)
    for depth in (150, 3000):
        # The first is too deep for the compiler, or already for the clone.
        with pytest.raises((tenonnx.NotSupported, tenonnx.InvalidGraph), match="too deeply"):
            tenonnx.InferenceSession(nested_ifs(depth))


def functions(count: int, calls: int) -> onnx.ModelProto:
    """A chain of functions, each of which calls the next one so many times."""
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("f", 1)]
    bodies = []
    for number in range(count):
        last = number == count - 1
        names = [f"v{i}" for i in range(calls)]
        chain = zip(["a", *names], [*names, "b"], strict=True)
        op, domain = ("Neg", "") if last else (f"F{number + 1}", "f")
        nodes = [helper.make_node(op, [i], [o], domain=domain) for i, o in chain]
        bodies.append(helper.make_function("f", f"F{number}", ["a"], ["b"], nodes, imports))
    call = helper.make_node("F0", ["x"], ["y"], domain="f")
    return model([call], [value("x")], [value("y")], functions=bodies, domains={"f": 1})


def test_functions_in_functions() -> None:
    (y,) = tenonnx.InferenceSession(functions(1500, 0)).run(None, {"x": X})
    np.testing.assert_array_equal(y, -X)


@pytest.mark.parametrize("count", [18, 64, 3000])
def test_functions_that_explode_are_refused(count: int) -> None:
    start = time.process_time()
    message = r"more than [0-9,]+ nodes, .*: F0 'y' \(f, opset 1\) alone stands for"
    with pytest.raises(tenonnx.InvalidGraph, match=message):
        tenonnx.InferenceSession(functions(count, 1))
    assert time.process_time() - start < SOON


def test_how_far_functions_expand_is_the_callers_to_say() -> None:
    options = tenonnx.SessionOptions()
    options.add_session_config_entry("session.function_expansion_node_limit", "100")
    with pytest.raises(tenonnx.InvalidGraph, match="more than 100 nodes"):
        tenonnx.InferenceSession(functions(8, 1), options)


def test_functions_may_expand_as_the_model_is_large() -> None:
    (y,) = tenonnx.InferenceSession(functions(13, 1)).run(None, {"x": X})
    np.testing.assert_array_equal(y, X)


def test_a_chain_of_many_nodes() -> None:
    count = 20_000
    nodes = [node("Neg", f"v{i}", f"v{i + 1}") for i in range(count)]
    proto = model(nodes, [value("v0")], [value(f"v{count}")])
    (y,) = tenonnx.InferenceSession(proto).run(None, {"v0": X})
    np.testing.assert_array_equal(y, X)


@pytest.mark.parametrize("op", ["Neg", "Identity"])
def test_a_node_with_many_inputs_takes_no_longer_than_many_nodes(op: str) -> None:
    """They are all the same, and replaced one by one."""
    names = [f"v{i}" for i in range(8000)]
    nodes = [node(op, "x", name) for name in names]
    nodes.append(node("Concat", " ".join(names), "y", axis=0))
    start = time.process_time()
    tenonnx.InferenceSession(model(nodes, [value("x")], [value("y")]))
    assert time.process_time() - start < SOON


def test_many_functions() -> None:
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("f", 1)]
    names = [f"F{i}" for i in range(4000)]
    step = [node("Neg", "a", "b")]
    bodies = [helper.make_function("f", name, ["a"], ["b"], step, imports) for name in names]
    calls = [node(name, f"v{i}", f"v{i + 1}", domain="f") for i, name in enumerate(names)]
    proto = model(calls, [value("v0")], [value("v4000")], functions=bodies, domains={"f": 1})
    with collector_off():
        start = time.process_time()
        (y,) = tenonnx.InferenceSession(proto).run(None, {"v0": X})
        spent = time.process_time() - start
    assert spent < SOON
    np.testing.assert_array_equal(y, X)


SIZES: dict[str, tuple[Any, str]] = {
    "more pieces than elements": (node("Split", "x", "y", num_outputs=1 << 50), "num_outputs"),
    "blocks of nothing": (node("DepthToSpace", "x", "y", blocksize=0), "blocksize"),
    "blocks of less": (node("SpaceToDepth", "x", "y", blocksize=-2), "blocksize"),
}


@pytest.mark.parametrize("name", SIZES)
def test_attributes_out_of_range_are_named(name: str) -> None:
    made, word = SIZES[name]
    shape = [1, 4, 2, 2]
    session = tenonnx.InferenceSession(model([made], [value("x", FLOAT, shape)], [value("y")]))
    with pytest.raises(tenonnx.TenonnxError, match=rf"expected (a )?{word}"):
        session.run(None, {"x": np.ones(shape, np.float32)})


def test_a_window_is_as_slow_as_what_it_sees() -> None:
    size = 1 << 40
    pads = [size - 1, size - 1, 0, 0]
    pool = node("MaxPool", "x", "y", kernel_shape=[size, size], pads=pads)
    x = np.random.default_rng(0).random((1, 1, 4, 4), np.float32)
    start = time.process_time()
    proto = model([pool], [value("x", FLOAT, x.shape)], [value("y")])
    (y,) = tenonnx.InferenceSession(proto).run(None, {"x": x})
    np.testing.assert_array_equal(y, np.maximum.accumulate(np.maximum.accumulate(x, 2), 3))
    assert time.process_time() - start < SOON


@pytest.mark.parametrize(
    ("kind", "dims", "message"),
    [(FLOAT, (0, 1 << 62), "no memory can have"), (onnx.TensorProto.STRING, (4,), "has 0 strings")],
)
def test_tensors_of_impossible_shapes(kind: int, dims: tuple[int, ...], message: str) -> None:
    proto = model([node("Identity", "w", "y")], [], [value("y", kind, None)])
    proto.graph.initializer.add(name="w", data_type=kind, dims=dims)
    with pytest.raises(tenonnx.InvalidGraph, match=message):
        tenonnx.InferenceSession(proto)


@pytest.mark.parametrize("seconds", [None, 9.0])
def test_a_loop_of_growing_values_is_named(seconds: float | None) -> None:
    proto = endless_loop()
    proto.graph.node[0].input[0] = "n"
    proto.graph.initializer.add(name="n", data_type=INT64, int64_data=[2])
    body = proto.graph.node[0].attribute[0].g
    body.node[0].CopyFrom(node("Concat", "a a", "b", axis=0))
    body.output.append(body.output[1])
    proto.graph.node[0].output.insert(0, "last")
    with pytest.raises(tenonnx.RuntimeException, match=r"^Loop .* shapes \(16,\) and \(8,\)"):
        limited(proto, seconds).run(None, {"x": X})
