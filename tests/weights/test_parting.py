"""Sessions that are gone leave no weight, without Python's collector."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from models import BOOL, INT64, graph, model, node, value
from tenonnx import InferenceSession, SessionOptions, WeightRegistry

W = np.arange(64, dtype=np.float32).reshape(8, 8)
X = np.ones((2, 8), np.float32)


def product() -> onnx.ModelProto:
    nodes = [node("MatMul", "x W", "h"), node("Relu", "h", "y")]
    return model(nodes, [value("x", shape=(None, 8))], [value("y", shape=(None, 8))], {"W": W})


def derived() -> onnx.ModelProto:
    nodes = [node("Transpose", "W", "T", perm=[1, 0]), node("Add", "T T", "D")]
    nodes += [node("Gemm", "x D", "y", transB=1)]
    return model(nodes, [value("x", shape=(None, 8))], [value("y", shape=(None, 8))], {"W": W})


def branches() -> onnx.ModelProto:
    bodies = {
        "then_branch": graph([node("MatMul", "x W", "a")], [], [value("a")]),
        "else_branch": graph([node("MatMul", "x V", "b")], [], [value("b")], {"V": W}),
    }
    inputs = [value("c", BOOL, ()), value("x", shape=(None, 8))]
    return model([node("If", "c", "y", **bodies)], inputs, [value("y")], {"W": W})


def loop() -> onnx.ModelProto:
    body = graph(
        [node("MatMul", "s W", "t"), node("Identity", "c", "d")],
        [value("i", INT64, ()), value("c", BOOL, ()), value("s")],
        [value("d", BOOL, ()), value("t")],
    )
    nodes = [node("Loop", "n _ x", "y", body=body)]
    return model(nodes, [value("x", shape=(None, 8))], [value("y")], {"W": W, "n": np.array(2)})


@pytest.fixture(autouse=True)
def _no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.fixture
def options(monkeypatch: pytest.MonkeyPatch) -> SessionOptions:
    """Options of sessions that read their model."""
    monkeypatch.setenv("TENONNX_PLANS", "0")
    made = SessionOptions()
    made.weights = WeightRegistry()
    return made


def sizes(registry: Any) -> tuple[int, ...]:
    report = registry.report()
    return report.mapped, report.derived, report.private, report.borrowed


def given(proto: onnx.ModelProto, form: str, folder: Path) -> Any:
    if form != "path":
        forms = {"bytes": proto.SerializeToString(), "ir": ir.from_proto(proto)}
        return forms.get(form, proto)
    path = folder / "model.onnx"
    onnx.save(proto, path, save_as_external_data=True, location="data", size_threshold=0)
    return path


@pytest.mark.parametrize("form", ["bytes", "proto", "ir", "path"])
@pytest.mark.parametrize("make", [product, derived, branches, loop])
def test_a_session_that_is_gone_holds_no_weight(
    make: Any, form: str, options: SessionOptions, tmp_path: Path
) -> None:
    session = InferenceSession(given(make(), form, tmp_path), options)
    feeds = {"x": X, "c": np.array(True)}
    session.run(None, {arg.name: feeds[arg.name] for arg in session.get_inputs()})
    assert any(sizes(session.registry))
    del session
    assert not any(sizes(options.weights))


def test_a_session_of_other_providers_holds_the_weights_once(options: SessionOptions) -> None:
    session = InferenceSession(product().SerializeToString(), options)
    before = sizes(session.registry)
    session.set_providers(["CPUExecutionProvider"])
    assert sizes(session.registry) == before
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], X @ W)


def test_a_graph_that_was_asked_for_keeps_its_weights(options: SessionOptions) -> None:
    found = InferenceSession(product().SerializeToString(), options).model.graph
    (weight,) = found.initializers.values()
    np.testing.assert_array_equal(weight.const_value.numpy(), W)


def test_a_plan_alone_runs(options: SessionOptions) -> None:
    session = InferenceSession(product().SerializeToString(), options)
    plan, placement = session.plan, session.placement
    del session
    np.testing.assert_array_equal(plan.run([X])[0], X @ W)
    np.testing.assert_array_equal(plan.narrowed([0]).run([X])[0], X @ W)
    assert "MatMul" in {assignment.node.op_type for assignment in placement}
