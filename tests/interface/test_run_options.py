"""Run options: stopping runs, narrowing them, adapters."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tenonnx
from models import BOOL, FLOAT, INT64, graph, model, node, value

X = np.arange(6, dtype=np.float32).reshape(2, 3)
GRACE_SECONDS = 0.05
"""Seconds that a run may go on computing."""


def endless_loop() -> Any:
    body = graph(
        [node("Identity", "on", "still"), node("Add", "a one", "b")],
        [value("i", INT64, []), value("on", BOOL, []), value("a", FLOAT, [])],
        [value("still", BOOL, []), value("b", FLOAT, [])],
    )
    loop = node("Loop", "_ go x", "y", body=body)
    weights = {"go": np.array(True), "one": np.array(1, np.float32)}
    return model([loop], [value("x", FLOAT, [])], [value("y", FLOAT, [])], weights)


def long_chain() -> Any:
    nodes = [node("MatMul", f"x{i} x{i}", f"x{i + 1}") for i in range(3000)]
    return model(nodes, [value("x0", FLOAT, [192, 192])], [value("x3000", FLOAT, [192, 192])])


def test_terminate_stops_a_loop() -> None:
    session = tenonnx.InferenceSession(endless_loop())
    check_terminate(session, {"x": np.float32(0)})


def test_terminate_stops_a_chain() -> None:
    session = tenonnx.InferenceSession(long_chain())
    feeds = {"x0": np.eye(192, dtype=np.float32)}
    session.run(None, feeds, tenonnx.RunOptions())  # writes the code of watched runs
    check_terminate(session, feeds)


def check_terminate(session: tenonnx.InferenceSession, feeds: Any) -> None:
    options = tenonnx.RunOptions()
    raised: list[Exception] = []
    running = threading.Event()

    def run() -> None:
        running.set()
        try:
            session.run(None, feeds, options)
        except Exception as error:
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    running.wait()
    time.sleep(0.1)
    assert thread.is_alive()
    start = time.process_time()
    options.terminate = True
    thread.join(60)
    assert not thread.is_alive()
    assert time.process_time() - start < GRACE_SECONDS
    assert isinstance(raised[0], tenonnx.Fail)
    assert "terminate" in str(raised[0])
    again = tenonnx.RunOptions()
    again.terminate = True
    with pytest.raises(tenonnx.Fail, match="terminate"):
        session.run(None, feeds, again)


def test_options_can_be_used_again() -> None:
    proto = model([node("Relu", "x", "y")], [value("x", FLOAT, [2, 3])], [value("y", FLOAT, None)])
    session = tenonnx.InferenceSession(proto)
    options = tenonnx.RunOptions()
    options.terminate = True
    with pytest.raises(tenonnx.Fail):
        session.run(None, {"x": X}, options)
    options.terminate = False
    np.testing.assert_array_equal(session.run(None, {"x": X}, options)[0], X)


def test_only_what_the_outputs_need_runs() -> None:
    ran: list[str] = []
    options = tenonnx.SessionOptions()

    @options.operator("test::Note")
    def note(x: Any, *, name: str) -> Any:
        ran.append(name)
        return x

    def noted(name: str, source: str, target: str) -> Any:
        return node("Note", source, target, name=name, domain="test")

    nodes = [noted("a", "x", "p"), noted("b", "p", "y"), noted("c", "p", "z")]
    for made in nodes:
        made.attribute.append(_string("name", made.name))
    proto = model(nodes, [value("x")], [value("y"), value("z")], domains={"test": 1})
    session = tenonnx.InferenceSession(proto, options)
    session.run(["z"], {"x": X[0]})
    assert ran == ["a", "b", "c"]
    ran.clear()
    run_options = tenonnx.RunOptions()
    run_options.only_execute_path_to_fetches = True
    (z,) = session.run(["z"], {"x": X[0]}, run_options)
    assert ran == ["a", "c"]
    np.testing.assert_array_equal(z, X[0])
    session.run(["z", "y"], {"x": X[0]}, run_options)
    assert ran == ["a", "c", "a", "b", "c"]


def _string(name: str, text: str) -> Any:
    from onnx import helper

    return helper.make_attribute(name, text)


def test_entries() -> None:
    options = tenonnx.RunOptions()
    options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
    assert options.get_run_config_entry("memory.enable_memory_arena_shrinkage") == "cpu:0"
    with pytest.raises(tenonnx.NotFound):
        options.get_run_config_entry("gpu_graph_id")
    with pytest.warns(UserWarning, match=r"did you mean 'gpu_graph_id'"):
        options.add_run_config_entry("gpu_graph_ids", "1")
    with pytest.raises(AttributeError):
        options.terminated = True  # type: ignore[attr-defined]


def adapted() -> Any:
    return model(
        [node("Add", "x a", "h"), node("Mul", "h b", "y")],
        [value("x", FLOAT, [3]), value("a", FLOAT, [3]), value("b", FLOAT, [1])],
        [value("y", FLOAT, [3])],
        {"a": np.zeros(3, np.float32), "b": np.ones(1, np.float32)},
    )


def write_adapter(path: Path, **arrays: Any) -> None:
    content = tenonnx.AdapterFormat()
    content.set_adapter_version(3)
    content.set_model_version(7)
    values = {n: tenonnx.OrtValue.ortvalue_from_numpy(a) for n, a in arrays.items()}
    content.set_parameters(values)
    content.export_adapter(path)


def test_an_adapter_feeds_its_parameters(tmp_path: Path) -> None:
    path = tmp_path / "lora.onnx_adapter"
    a, b = np.arange(3, dtype=np.float32), np.array([2], np.float32)
    write_adapter(path, a=a, b=b)
    adapter = tenonnx.LoraAdapter()
    adapter.Load(path)
    assert adapter.parameters["a"].base is not None
    session = tenonnx.InferenceSession(adapted())
    options = tenonnx.RunOptions()
    options.add_active_adapter(adapter)
    x = np.ones(3, np.float32)
    np.testing.assert_array_equal(session.run(None, {"x": x}, options)[0], (x + a) * b)
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], x)


def test_adapters_are_read_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "lora.onnx_adapter"
    arrays = {
        "first": np.arange(6, dtype=np.float16).reshape(2, 3),
        "a longer name": np.array(3, np.int64),
        "empty": np.zeros((0, 4), np.float64),
    }
    write_adapter(path, **arrays)
    content = tenonnx.AdapterFormat.read_adapter(path)
    assert (content.get_adapter_version(), content.get_model_version()) == (3, 7)
    for name, parameter in content.get_parameters().items():
        found = parameter.numpy()
        assert found.dtype == arrays[name].dtype
        np.testing.assert_array_equal(found, arrays[name])


def test_onnxruntime_reads_and_writes_the_same_adapters(tmp_path: Path) -> None:
    ort = pytest.importorskip("onnxruntime", reason="compares with onnxruntime")
    path, back = tmp_path / "ours.onnx_adapter", tmp_path / "theirs.onnx_adapter"
    arrays = {"a": np.arange(3, dtype=np.float32), "bc": np.arange(4).reshape(2, 2)}
    write_adapter(path, **arrays)
    theirs = ort.AdapterFormat.read_adapter(str(path))
    for name, parameter in theirs.get_parameters().items():
        np.testing.assert_array_equal(parameter.numpy(), arrays[name])
    theirs.export_adapter(str(back))
    for name, parameter in tenonnx.AdapterFormat.read_adapter(back).get_parameters().items():
        np.testing.assert_array_equal(parameter.numpy(), arrays[name])


def test_what_is_no_adapter(tmp_path: Path) -> None:
    path = tmp_path / "no"
    with pytest.raises(tenonnx.InvalidArgument, match="expected a LoraAdapter, got"):
        tenonnx.RunOptions().add_active_adapter(path)
    with pytest.raises(tenonnx.NoSuchFile):
        tenonnx.LoraAdapter().Load(path)
    path.write_bytes(b"nothing of the kind")
    with pytest.raises(tenonnx.InvalidProtobuf, match="instead of b'TORT'"):
        tenonnx.LoraAdapter().Load(path)
    write_adapter(path, a=np.zeros(100, np.float32))
    content = path.read_bytes()
    for size in range(8, len(content), 7):
        path.write_bytes(content[:size])
        with pytest.raises(tenonnx.InvalidProtobuf):
            tenonnx.LoraAdapter().Load(path)
