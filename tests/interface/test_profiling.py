"""Traces: onnxruntime's events and fields, and what watching costs when nobody watches."""

from __future__ import annotations

import gc
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tenonnx
from models import BOOL, FLOAT, INT64, graph, model, node, value

X = np.arange(6, dtype=np.float32).reshape(2, 3)
W = np.ones((3, 4), np.float32)


def product() -> Any:
    return model(
        [node("MatMul", "x w", "h", name="mul"), node("TopK", "h k", "y i")],
        [value("x", FLOAT, ["batch", 3])],
        [value("y", FLOAT, None), value("i", INT64, None)],
        {"w": W, "k": np.array([2])},
    )


def profiled(tmp_path: Path, proto: Any, **feeds: Any) -> list[dict[str, Any]]:
    options = tenonnx.SessionOptions(
        enable_profiling=True, profile_file_prefix=str(tmp_path / "trace")
    )
    session = tenonnx.InferenceSession(proto, options)
    before = time.time_ns()
    assert 0 < session.get_profiling_start_time_ns() <= before
    session.run(None, feeds)
    path = session.end_profiling()
    assert Path(path).parent == tmp_path
    assert Path(path).name.startswith("trace_")
    assert session.end_profiling() == ""
    assert session.get_profiling_start_time_ns() == 0
    session.run(None, feeds)
    events: list[dict[str, Any]] = json.loads(Path(path).read_text())
    return events


def test_a_trace_has_onnxruntimes_events_and_fields(tmp_path: Path) -> None:
    events = profiled(tmp_path, product(), x=X)
    fields = {"cat", "pid", "tid", "dur", "ts", "ph", "name", "args"}
    assert all(event.keys() == fields for event in events)
    assert [(event["cat"], event["name"]) for event in events] == [
        ("Session", "model_loading_array"),
        ("Session", "session_initialization"),
        ("Node", "mul_kernel_time"),
        ("Node", "TopK_1_kernel_time"),
        ("Session", "SequentialExecutor::Execute"),
        ("Session", "model_run"),
    ]
    multiply, top = (event["args"] for event in events[2:4])
    assert multiply["op_name"] == "MatMul"
    assert multiply["provider"] == "CPUExecutionProvider"
    assert multiply["plugin"] == "cpu"
    assert multiply["kernel"]
    assert multiply["input_type_shape"] == [{"float": [2, 3]}, {"float": [3, 4]}]
    assert multiply["output_type_shape"] == [{"float": [2, 4]}]
    assert (multiply["parameter_size"], multiply["activation_size"]) == ("48", "24")
    assert multiply["output_size"] == "32"
    assert top["output_type_shape"] == [{"float": [2, 2]}, {"int64": [2, 2]}]
    assert top["activation_size"] == "32"
    run = events[-1]
    for event in events[2:-1]:
        assert run["ts"] <= event["ts"]
        assert event["ts"] + event["dur"] <= run["ts"] + run["dur"] + 1


def test_onnxruntime_writes_these_fields(tmp_path: Path) -> None:
    ort = pytest.importorskip("onnxruntime", reason="compares with onnxruntime")
    options = ort.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(tmp_path / "theirs")
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(product().SerializeToString(), options)
    session.run(None, {"x": X})
    theirs = json.loads(Path(session.end_profiling()).read_text())
    ours = profiled(tmp_path, product(), x=X)
    assert [e["name"] for e in ours] == [e["name"] for e in theirs]
    for a, b in zip(ours, theirs, strict=True):
        assert a.keys() == b.keys()
        measured = {k for k in b["args"] if k.startswith(("mem_", "thread_"))}
        assert b["args"].keys() - measured <= a["args"].keys()
        if a["cat"] == "Node":
            assert a["args"]["output_type_shape"] == b["args"]["output_type_shape"]
            assert a["args"]["op_name"] == b["args"]["op_name"]


def test_iterations_are_events_of_their_own(tmp_path: Path) -> None:
    body = graph(
        [node("Identity", "on", "still"), node("TopK", "a k", "b i", name="inner")],
        [value("n", INT64, []), value("on", BOOL, []), value("a", FLOAT, [3])],
        [value("still", BOOL, []), value("b", FLOAT, [3])],
    )
    proto = model(
        [node("Loop", "n go x", "y", body=body)],
        [value("x", FLOAT, [3])],
        [value("y", FLOAT, [3])],
        {"n": np.array(4), "go": np.array(True), "k": np.array([3])},
    )
    events = profiled(tmp_path, proto, x=X[0])
    assert [e["name"] for e in events].count("inner_kernel_time") == 4


def test_a_session_that_goes_leaves_its_trace(tmp_path: Path) -> None:
    options = tenonnx.SessionOptions(enable_profiling=True, profile_file_prefix=f"{tmp_path}/t")
    session = tenonnx.InferenceSession(product(), options)
    session.run(None, {"x": X})
    assert not list(tmp_path.iterdir())
    del session
    gc.collect()
    (path,) = tmp_path.iterdir()
    assert json.loads(path.read_text())[-1]["name"] == "model_run"


def test_nobody_watches_unless_asked() -> None:
    session = tenonnx.InferenceSession(product())
    assert session.end_profiling() == ""
    assert "observe" not in session.plan.source
    assert "clock" not in session.plan.source


def test_a_trace_that_cannot_be_written() -> None:
    options = tenonnx.SessionOptions(enable_profiling=True, profile_file_prefix="/no/such/t")
    session = tenonnx.InferenceSession(product(), options)
    with pytest.raises(tenonnx.Fail, match="cannot write the profile /no/such/t"):
        session.end_profiling()


class Far:
    """Its own memory by the plan's account."""

    id = "far:0"

    def upload(self, array: Any) -> Any:
        return array.copy()

    def download(self, array: Any) -> Any:
        return array.copy()

    def stack(self, arrays: list[Any], axis: int) -> Any:
        return np.stack(arrays, axis)


class FarProvider(tenonnx.Provider):
    name = "FarExecutionProvider"

    def supports(self, node: Any) -> bool | str:
        return node.op_type in ("Neg", "Add") or "near"

    def compile(self, segment: tenonnx.Segment) -> list[tenonnx.Step]:
        calls = {"Neg": np.negative, "Add": np.add}
        return [
            tenonnx.Step(calls[n.op_type], tuple(n.inputs), tuple(n.outputs), (n,), device=Far())
            for n in segment.nodes
        ]


class FarPlugin:
    @tenonnx.hookimpl
    def register_providers(self, register: Any) -> None:
        register(FarProvider)


def test_bytes_copied_between_devices_are_told(tmp_path: Path) -> None:
    """x goes there once for two nodes, a comes back for Exp, and y goes and comes as an output."""
    proto = model(
        [
            node("Neg", "x", "a", name="neg"),
            node("Add", "a x", "b", name="add"),
            node("Exp", "a", "e", name="exp"),
            node("Add", "e b", "y", name="last"),
        ],
        [value("x", FLOAT, [2, 3])],
        [value("y", FLOAT, [2, 3]), value("e", FLOAT, [2, 3])],
    )
    plugins = tenonnx.PluginSet()
    plugins.register(FarPlugin())
    options = tenonnx.SessionOptions(
        plugins=plugins, enable_profiling=True, profile_file_prefix=str(tmp_path / "trace"),
        graph_optimization_level=tenonnx.GraphOptimizationLevel.ORT_DISABLE_ALL,
    )  # fmt: skip
    session = tenonnx.InferenceSession(proto, options, ["FarExecutionProvider", "cpu"])
    session.run(None, {"x": X})
    session.run(None, {"x": X})
    events = json.loads(Path(session.end_profiling()).read_text())
    copied = [
        (e["name"].removesuffix("_kernel_time"), int(e["args"]["copied_size"]))
        for e in events
        if "copied_size" in e["args"]
    ]
    size = X.nbytes
    run = [("neg", size), ("add", 0), ("exp", size), ("last", size), ("model_run", size)]
    assert copied == run * 2


def test_nothing_is_copied_on_the_host(tmp_path: Path) -> None:
    events = profiled(tmp_path, product(), x=X)
    assert {e["args"]["copied_size"] for e in events if "copied_size" in e["args"]} == {"0"}
