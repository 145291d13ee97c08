"""The compiled plan: observers, releases, and the code itself."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest

import tenonnx
from hooks import options_with
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


class InOne(tenonnx.Provider):
    """A provider whose Neg and Relu are one step, of two parts."""

    name = "InOneExecutionProvider"

    def supports(self, node: Any) -> Any:
        return node.op_type in ("Neg", "Relu") or "no such operator"

    def compile(self, segment: Any) -> list[tenonnx.Step]:
        def relu(x: Any) -> Any:
            if x.max() > 100:
                raise OverflowError("too large")
            return np.maximum(x, 0)

        def whole(x: Any) -> tuple[Any, ...]:
            try:
                y = np.negative(x)
                return y, relu(y)
            except OverflowError as error:
                vars(error)["step"] = parts[1]
                raise

        calls = {"Neg": np.negative, "Relu": relu}
        parts = tuple(
            tenonnx.Step(calls[n.op_type], tuple(n.inputs), tuple(n.outputs), (n,))
            for n in segment.nodes
        )
        outputs = tuple(part.outputs[0] for part in parts)
        return [
            tenonnx.Step(whole, parts[0].inputs, outputs, segment.nodes, multiple=True, parts=parts)
        ]


def in_one() -> tenonnx.InferenceSession:
    nodes = [node("Neg", "x", "y"), node("Relu", "y", "z")]
    proto = model(nodes, [value("x", FLOAT, [2])], [value("y"), value("z")])
    return tenonnx.InferenceSession(proto, options_with(InOne), providers=[InOne.name])


def test_a_step_of_parts_runs_as_one_unless_it_is_watched_or_partly_wanted() -> None:
    session, x = in_one(), np.array([1, -2], np.float32)
    y, z = session.run(None, {"x": x})
    np.testing.assert_array_equal([y, z], [-x, np.maximum(-x, 0)])
    assert session.plan.source.count("= k") == 1
    recorder = Recorder()
    watched = session.plan.run_observed([x], [recorder])
    np.testing.assert_array_equal(watched, [y, z])
    assert recorder.seen == ["Neg", "Relu"]
    (alone,) = session.plan.narrowed([0]).run([np.array([-200, 0], np.float32)])
    np.testing.assert_array_equal(alone, [200, 0])
    assert [step.nodes[0].op_type for step in session.plan.steps] == ["Neg", "Relu"]


def test_an_error_in_a_step_of_parts_names_the_part() -> None:
    with pytest.raises(tenonnx.errors.RuntimeException, match=r"^Relu .*too large"):
        in_one().run(None, {"x": np.array([-200, 0], np.float32)})
