"""Contributions of plug-ins in use: operators, transforms, observers and formats."""

from __future__ import annotations

import types
from pathlib import Path
from typing import Any

import onnx_ir as ir
import pytest

import tenonnx
from hooks import RELU, Formats, Operators, Transforms, X, domain_model, options_with
from models import model, node, value


def test_operators_of_a_plugin_run_on_the_provider_they_are_for() -> None:
    table = tenonnx.OperatorTable("com.example")
    table.rows({"Double": lambda _, x: x + x})
    plugins = tenonnx.PluginSet()
    plugins.register(Operators(table, provider="cuda"))
    options = tenonnx.SessionOptions(plugins=plugins)
    with pytest.raises(tenonnx.NotSupported):
        tenonnx.InferenceSession(domain_model(), options)
    plugins.register(Operators(table, provider="cpu"), name="for-cpu")
    session = tenonnx.InferenceSession(domain_model(), options)
    assert session.run(None, {"x": X})[0].tolist() == [-2, 4]


def test_a_plugin_may_replace_a_kernel_of_a_provider() -> None:
    table = tenonnx.OperatorTable()
    table.rows({"Relu": lambda xp, x: xp.full_like(x, 7)}, since=14)
    session = tenonnx.InferenceSession(RELU, options_with(table, hooks=Operators))
    assert session.run(None, {"x": X})[0].tolist() == [7, 7]


def break_name(ir_model: ir.Model, _: Any) -> bool:
    first = ir_model.graph[0]
    first.replace_input_with(0, ir.Value(name="nowhere"))
    return True


def fail(*_: Any) -> bool:
    raise KeyError("lost")


@pytest.mark.parametrize(
    ("apply", "message"),
    [
        (fail, r"transform 'mine' failed \(the model was changed.* by: none\): KeyError\('lost'\)"),
        (
            break_name,
            r"transform 'mine' failed .*: Relu 'r' .* reads 'nowhere', which [^\n]*\nHint: run",
        ),
    ],
)
def test_a_transform_that_fails_or_breaks_the_graph_is_named(apply: Any, message: str) -> None:
    transform = tenonnx.Transform("mine", apply, level="extended")
    options = options_with(transform, hooks=Transforms)
    with pytest.raises(tenonnx.PluginError, match=message) as raised:
        tenonnx.InferenceSession(RELU, options)
    assert raised.value.hint == "run without it: SessionOptions(disabled_transforms=['mine'])"
    options.disabled_transforms = ["mine"]
    tenonnx.InferenceSession(RELU, options)


@pytest.mark.parametrize(
    ("needs", "applied"),
    [((), True), (("Relu",), True), ((("Add", "Relu"),), True), (("Relu", "Add"), False)],
)
@pytest.mark.parametrize("level", ["required", "basic"])
def test_a_transform_is_applied_to_models_that_have_what_it_needs(
    needs: Any, applied: bool, level: Any
) -> None:
    seen: list[ir.Model] = []
    mine = tenonnx.Transform("mine", lambda m, _: bool(seen.append(m)), level, needs=needs)
    session = tenonnx.InferenceSession(RELU, options_with(mine, hooks=Transforms))
    assert len(seen) == applied
    assert [r.name for r in session.transforms if r.name == "mine"] == ["mine"][: level == "basic"]


def test_what_a_transform_needs_is_asked_of_the_model_as_it_is_by_then() -> None:
    seen: list[str] = []

    def rename(model: ir.Model, _: Any) -> bool:
        model.graph[0].op_type = "Neg"
        return True

    options = options_with(
        tenonnx.Transform("one", rename, order=1, needs=("Relu",)),
        tenonnx.Transform("old", lambda *_: bool(seen.append("old")), order=2, needs=("Relu",)),
        tenonnx.Transform("new", lambda *_: bool(seen.append("new")), order=2, needs=("Neg",)),
        hooks=Transforms,
    )
    session = tenonnx.InferenceSession(RELU, options)
    assert seen == ["new"]
    assert session.run(None, {"x": X})[0].tolist() == (-X).tolist()


def test_a_transform_to_disable_must_exist() -> None:
    options = tenonnx.SessionOptions(disabled_transforms=["fold-constant"])
    with pytest.raises(
        tenonnx.InvalidArgument, match="no transform 'fold-constant' to disable; did you mean 'fold"
    ):
        tenonnx.InferenceSession(RELU, options)


class Observing:
    """A plug-in that watches every plan but those it is told to leave alone."""

    def __init__(self) -> None:
        self.plans: list[tenonnx.Plan] = []
        self.seen: list[tuple[str, int, float]] = []
        self.watch = True

    @tenonnx.hookimpl
    def create_observer(self, plan: tenonnx.Plan) -> tenonnx.Observer | None:
        self.plans.append(plan)
        return self if self.watch else None

    def on_step(self, step: tenonnx.Step | None, start_ns: int, outputs: tuple[Any, ...]) -> None:
        assert step is not None
        self.seen.append((step.nodes[0].op_type, start_ns, float(outputs[0].sum())))


CHAIN = model(
    [node("Relu", "x", "h", name="r"), node("Neg", "h", "y", name="n")],
    [value("x")],
    [value("y")],
)
PLAIN = tenonnx.GraphOptimizationLevel.ORT_DISABLE_ALL
"""Every node is a step."""


def test_an_observer_is_asked_once_per_plan_and_sees_every_step() -> None:
    plugins = tenonnx.PluginSet()
    observing = Observing()
    plugins.register(observing)
    options = tenonnx.SessionOptions(graph_optimization_level=PLAIN, plugins=plugins)
    session = tenonnx.InferenceSession(CHAIN, options)
    assert session.run(None, {"x": X})[0].tolist() == [0, -2]
    session.run(None, {"x": X})
    assert observing.plans == [session.plan]
    assert [(op, total) for op, _, total in observing.seen] == [("Relu", 2), ("Neg", -2)] * 2
    starts = [start for _, start, _ in observing.seen]
    assert 0 < starts[0] <= starts[1] <= starts[2] <= starts[3]
    tenonnx.InferenceSession(CHAIN, options)
    assert len(observing.plans) == 2


def test_a_plan_that_nobody_observes_runs_plain_code(monkeypatch: pytest.MonkeyPatch) -> None:
    plugins = tenonnx.PluginSet()
    observing = Observing()
    observing.watch = False
    plugins.register(observing)
    session = tenonnx.InferenceSession(CHAIN, tenonnx.SessionOptions(plugins=plugins))

    def refuse(*_: Any) -> None:
        raise AssertionError("the observed code was asked for")

    monkeypatch.setattr(session.plan, "run_observed", refuse)
    assert session.run(None, {"x": X})[0].tolist() == [0, -2]
    assert len(observing.plans) == 1
    assert observing.seen == []
    assert "observe" not in session.plan.source
    assert "clock" not in session.plan.source


@pytest.mark.parametrize("kind", [OSError, SystemExit])
def test_an_observer_that_cannot_be_made_is_named(kind: type[BaseException]) -> None:
    plugin = types.SimpleNamespace()

    @tenonnx.hookimpl
    def create_observer(plan: tenonnx.Plan) -> None:
        raise kind(f"no room to trace {len(plan.steps)} steps")

    plugin.create_observer = create_observer
    plugins = tenonnx.PluginSet()
    plugins.register(plugin, name="tracer")
    options = tenonnx.SessionOptions(graph_optimization_level=PLAIN, plugins=plugins)
    with pytest.raises(
        tenonnx.PluginError,
        match="plug-in 'tracer' failed to create an observer: "
        rf"{kind.__name__}: no room to trace 2 steps\n"
        "Hint: do without it: TENONNX_BLOCK_PLUGINS=tracer",
    ):
        tenonnx.InferenceSession(CHAIN, options)


def test_an_observers_exception_reaches_the_caller_as_it_is() -> None:
    class Stopping(Observing):
        def on_step(self, *_: Any) -> None:
            raise InterruptedError("enough")

    plugins = tenonnx.PluginSet()
    plugins.register(Stopping())
    session = tenonnx.InferenceSession(CHAIN, tenonnx.SessionOptions(plugins=plugins))
    with pytest.raises(InterruptedError, match=r"^enough$"):
        session.run(None, {"x": X})


def test_a_format_reads_the_files_it_recognizes(tmp_path: Path) -> None:
    def load(source: Any, registry: tenonnx.WeightRegistry) -> ir.Model:
        assert source
        assert isinstance(registry, tenonnx.WeightRegistry)
        return ir.serde.deserialize_model(RELU)

    plugins = tenonnx.PluginSet()
    made = tenonnx.Format("tiny", load, sniff=lambda head: head.startswith(b"TINY"))
    plugins.register(Formats(made))
    options = tenonnx.SessionOptions(plugins=plugins)
    path = tmp_path / "model.tiny"
    path.write_bytes(b"TINY model")
    for source in (path, str(path), b"TINY model"):
        assert tenonnx.InferenceSession(source, options).run(None, {"x": X})[0].tolist() == [0, 2]


@pytest.mark.parametrize(
    ("load", "message"),
    [
        (lambda *_: 1 // 0, r"format 'tiny' failed to load it: ZeroDivisionError"),
        (lambda *_: RELU, r"format 'tiny' loads ModelProto; expected an onnx_ir\.Model"),
    ],
)
def test_a_format_that_fails_is_named(load: Any, message: str) -> None:
    made = tenonnx.Format("tiny", load, sniff=lambda head: head.startswith(b"TINY"))
    with pytest.raises(tenonnx.PluginError, match=message):
        tenonnx.InferenceSession(b"TINY", options_with(made, hooks=Formats))


def odd(supports: Any, made: Any = None) -> type[tenonnx.Provider]:
    methods = {"supports": lambda *_: supports(), "compile": lambda *_: made}
    return type("Odd", (tenonnx.Provider,), {"name": "OddProvider", **methods})


@pytest.mark.parametrize(
    ("supports", "made", "message"),
    [
        (fail, None, r"OddProvider failed when asked whether it supports Relu 'r' .*: KeyError"),
        (bool, None, r"OddProvider: it says no reason"),
        (
            lambda: True,
            None,
            r"OddProvider compiled Relu 'r' .*: expected a list .*, got None",
        ),
        (lambda: True, [abs], r"OddProvider compiled Relu 'r' .*: expected .*, got \[<built-in"),
        (lambda: True, [], r"OddProvider compiled Relu 'r' .* without producing 'y'"),
    ],
)
def test_a_provider_that_breaks_its_contract_is_named(
    supports: Any, made: Any, message: str
) -> None:
    options = options_with(odd(supports, made))
    with pytest.raises((tenonnx.EPFail, tenonnx.NotSupported), match=message):
        tenonnx.InferenceSession(RELU, options, providers=["OddProvider"])
