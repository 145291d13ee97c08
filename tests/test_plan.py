"""The compiled plan: observers, releases, and the code itself."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest

import tenonnx
from models import BOOL, FLOAT, INT64, graph, model, node, value


class Recorder:
    def __init__(self) -> None:
        self.seen: list[str] = []

    def on_step(self, step: tenonnx.Step | None, start_ns: int, outputs: tuple[Any, ...]) -> None:
        del start_ns, outputs
        self.seen.append(step.nodes[0].op_type if step else "iteration")


def test_observers_see_every_step_and_iteration() -> None:
    body = graph(
        [node("Add", "a x", "b"), node("Identity", "cond", "go")],
        [value("i", INT64, []), value("cond", BOOL, []), value("a", FLOAT, [2])],
        [value("go", BOOL, []), value("b", FLOAT, [2])],
    )
    nodes = [node("Loop", "n _ x", "y", body=body), node("Relu", "y", "z")]
    proto = model(nodes, [value("n", INT64, []), value("x", FLOAT, [2])], [value("z")])
    session = tenonnx.InferenceSession(proto)
    x, recorder = np.ones(2, np.float32), Recorder()
    (z,) = session.plan.run_observed([np.array(2), x], [recorder])
    np.testing.assert_array_equal(z, 3 * x)
    assert recorder.seen == ["iteration", "Add", "Identity"] * 2 + ["Relu"]
    assert "observe" not in session.plan.source


def test_an_observer_may_stop_a_run() -> None:
    proto = model([node("Relu", "x", "y")], [value("x", FLOAT, [2])], [value("y")])
    session = tenonnx.InferenceSession(proto)

    class Stop(Recorder):
        def on_step(self, *seen: Any) -> None:
            del seen
            raise TimeoutError("enough")

    with pytest.raises(TimeoutError, match="enough"):
        session.plan.run_observed([np.ones(2, np.float32)], [Stop()])
    session.run(None, {"x": np.ones(2, np.float32)})


def test_values_are_dropped_after_their_last_use() -> None:
    alive: list[int] = []
    born: list[weakref.ref[Any]] = []
    nodes = [node("Mul", f"x{i} x{i}", f"x{i + 1}") for i in range(5)]
    session = tenonnx.InferenceSession(
        model(nodes, [value("x0", FLOAT, [2])], [value("x5")]),
    )

    class Counter(Recorder):
        def on_step(self, *seen: Any) -> None:
            outputs = seen[2]
            born.append(weakref.ref(outputs[0]))
            alive.append(sum(ref() is not None for ref in born))

    session.plan.run_observed([np.ones(2, np.float32)], [Counter()])
    gc.collect()
    assert max(alive) <= 2


def test_a_long_chain_compiles_and_runs() -> None:
    count = 3000
    nodes = [node("Neg", f"x{i}", f"x{i + 1}") for i in range(count)]
    session = tenonnx.InferenceSession(
        model(nodes, [value("x0", FLOAT, [2])], [value(f"x{count}")])
    )
    x = np.array([1, 2], np.float32)
    np.testing.assert_array_equal(session.run(None, {"x0": x})[0], x)


def nested_branches(depth: int) -> tenonnx.InferenceSession:
    inner = graph([node("Relu", "x", "t")], [], [value("t")])
    for level in range(depth):
        leaf = graph([node("Neg", "x", f"n{level}")], [], [value(f"n{level}")])
        branch = node("If", "c", f"t{level}", then_branch=inner, else_branch=leaf)
        inner = graph([branch], [], [value(f"t{level}")])
    proto = model(
        [node("If", "c", "y", then_branch=inner, else_branch=inner)],
        [value("c", BOOL, []), value("x", FLOAT, [2])],
        [value("y")],
    )
    return tenonnx.InferenceSession(proto)


def test_branches_as_deep_as_protobuf_allows_run() -> None:
    x = np.array([1, -2], np.float32)
    (y,) = nested_branches(25).run(None, {"c": np.array(True), "x": x})
    np.testing.assert_array_equal(y, [1, 0])
