"""The provider that runs a model: requests that fit, that do not, and their messages."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import onnx
import pytest

import tenonnx
from hooks import RELU, Nothing, X, domain_model, options_with
from models import model, node, value
from tenonnx_cpu.provider import CPUExecutionProvider


@dataclass
class NullOptions:
    """Options of every kind."""

    level: int = 0
    fast: bool = False
    where: str = ""
    needed: Any = None


class Unusable(CPUExecutionProvider):
    name: ClassVar[str] = "UnusableProvider"
    aliases: ClassVar[tuple[str, ...]] = ("unusable",)
    Options: ClassVar[type | None] = NullOptions

    @classmethod
    def check(cls) -> str | None:
        return "the board is missing: plug it in"


class Picky(CPUExecutionProvider):
    name: ClassVar[str] = "PickyProvider"
    aliases: ClassVar[tuple[str, ...]] = ()

    @dataclass
    class Options:
        """Options without which it cannot be."""

        key: str


class Crashing(CPUExecutionProvider):
    name: ClassVar[str] = "CrashingProvider"
    aliases: ClassVar[tuple[str, ...]] = ("crashing",)

    def __init__(self, *_: Any) -> None:
        raise OSError("device on fire")


class CheckFails(CPUExecutionProvider):
    name: ClassVar[str] = "CheckFailsProvider"
    aliases: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def check(cls) -> str | None:
        raise ImportError("libchip.so.3")


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ("UnusableProvide", "unknown provider 'UnusableProvide'; did you mean 'UnusableProvider'"),
        ("zzz", r"unknown provider 'zzz' \(there are 14: CPUExecutionProvider, cpu, .*UnusableP"),
        (("unusable", {"levle": 1}), "UnusableProvider has no option 'levle'; did you mean 'level"),
        (("unusable", {"level": "x"}), r"option 'level' is 'x'; expected int, such as 0"),
        (("unusable", {"fast": "maybe"}), "option 'fast' is 'maybe'; expected bool, such as False"),
        ("PickyProvider", "the options of PickyProvider do not fit: .*'key'"),
        (("cpu", {"x": 1}, 3), r"providers\[0\] is \('cpu', {'x': 1}, 3\); expected a name"),
    ],
)
def test_wrong_provider_requests(request_: Any, message: str) -> None:
    options = options_with(Unusable, Picky)
    with pytest.raises(tenonnx.InvalidArgument, match=message):
        tenonnx.InferenceSession(RELU, options, providers=[request_])


def test_an_unknown_provider_may_belong_to_a_plugin_that_failed(
    install: Callable[..., None],
) -> None:
    install("chip", "raise OSError('libchip.so')")
    options = tenonnx.SessionOptions(plugins=tenonnx.PluginSet())
    with pytest.raises(
        tenonnx.InvalidArgument,
        match=r"(?s)unknown provider 'chip'.*Hint: these plug-ins did not load: chip "
        r"\(tenonnx-chip 1\.0\): OSError: libchip\.so",
    ):
        tenonnx.InferenceSession(RELU, options, providers=["chip"])


def test_an_unusable_provider_gives_way_to_the_next_with_one_warning() -> None:
    options = options_with(Unusable)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        session = tenonnx.InferenceSession(RELU, options, providers=["unusable", "cpu"])
        session.run(None, {"x": X})
    (warning,) = caught
    assert str(warning.message) == (
        "running on CPUExecutionProvider; "
        "not usable: UnusableProvider: the board is missing: plug it in"
    )
    assert warning.filename == __file__
    assert session.get_providers() == ["CPUExecutionProvider"]


@pytest.mark.parametrize(
    ("providers", "options", "message"),
    [
        ("cpu", None, r"providers is a str; pass a list: providers=\['cpu'\]"),
        ({"cpu": {}}, None, r"providers is a dict; pass a list: providers=\[\('cpu', {}\)\]"),
        (["cpu"], {"a": 1}, r"provider_options is a dict; pass a list: \[{'a': 1}\]"),
    ],
)
def test_what_is_taken_for_a_list_is_told(providers: Any, options: Any, message: str) -> None:
    with pytest.raises(tenonnx.InvalidArgument, match=message):
        tenonnx.InferenceSession(RELU, None, providers, options)


def test_an_unusable_provider_alone_is_an_error() -> None:
    with pytest.raises(
        tenonnx.EPFail,
        match="none of the providers asked for can be used here: UnusableProvider: the board is "
        "missing: plug it in\nHint: name another after them",
    ):
        tenonnx.InferenceSession(RELU, options_with(Unusable), providers=["unusable"])


def test_providers_nobody_asked_for_break_nothing() -> None:
    options = options_with(Unusable, Picky, Crashing, CheckFails)
    session = tenonnx.InferenceSession(RELU, options, providers=["cpu"])
    assert session.run(None, {"x": X})[0].tolist() == [0, 2]


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ("crashing", "CrashingProvider failed to start: OSError: device on fire"),
        ("CheckFailsProvider", "CheckFailsProvider: its check failed: ImportError: libchip"),
    ],
)
def test_a_provider_that_fails_is_named(request_: str, message: str) -> None:
    options = options_with(Crashing, CheckFails)
    with pytest.raises(tenonnx.EPFail, match=message):
        tenonnx.InferenceSession(RELU, options, providers=[request_])


@pytest.mark.parametrize(
    ("proto", "message"),
    [
        (
            domain_model(version=7),
            r"(?s)a node has no provider that runs it:\n  Double 'd' \(com\.example, opset 7\): "
            r"CPUExecutionProvider: no kernel for com\.example::Double-7\n"
            r"Hint: install a plug-in that has the operators of com\.example, or write one: .*"
            r"--plugin FILE\.py",
        ),
        (
            model([node("Rleu", "x", "y", name="r")], [value("x")], [value("y")]),
            r"(?s)Rleu 'r' \(ai\.onnx, opset 21\).*::Rleu-21.*did you mean Relu",
        ),
        (
            model(
                [node("Inverse", "x x", "y", domain="com.microsoft")],
                [value("x")],
                [value("y")],
                domains={"com.microsoft": 1},
            ),
            r"(?s)Inverse-1 takes 1 input, the node has 2\nHint: the operator is known: change",
        ),
        *(
            (
                model(
                    [node(op, inputs, "y", domain="com.microsoft")],
                    [value("x")],
                    [value("y")],
                    domains={"com.microsoft": 1},
                ),
                rf"(?s){op}-1 takes {takes}, the node has {len(inputs.split())}\n",
            )
            for op, inputs, takes in (("BiasGelu", "x", "2 inputs"), ("Gelu", "x x", "1 input"))
        ),
    ],
)
def test_an_operator_that_nobody_runs(proto: Any, message: str) -> None:
    with pytest.raises(tenonnx.NotSupported, match=message):
        tenonnx.InferenceSession(proto, providers=["cpu"])


def test_a_node_that_differs_from_its_schema_is_no_unknown_operator() -> None:
    proto = model([node("Relu", "x x", "y", name="r")], [value("x")], [value("y")])
    with pytest.raises(tenonnx.InvalidGraph, match="has 2 inputs, it needs 1") as raised:
        tenonnx.InferenceSession(proto, providers=["cpu"])
    assert not isinstance(raised.value, tenonnx.NotSupported)


def test_an_operator_that_a_provider_not_asked_for_runs() -> None:
    with pytest.raises(
        tenonnx.NotSupported,
        match=r"(?s) in the body of Relu 'r' \(ai\.onnx, opset 21\): NothingProvider: nothing .*"
        r"Hint: CPUExecutionProvider supports them: add it to providers=",
    ):
        tenonnx.InferenceSession(RELU, options_with(Nothing), providers=["nothing"])


DEPENDENT = sorted(
    schema.name
    for schema in onnx.defs.get_all_schemas()
    if schema.has_context_dependent_function and schema.domain == ""
)


@pytest.mark.parametrize("op", [op for op in DEPENDENT if op != "SequenceMap"])
def test_a_body_that_depends_on_types_that_are_not_known(
    op: str, caplog: pytest.LogCaptureFixture
) -> None:
    schema = onnx.defs.get_schema(op)
    inputs = " ".join(f"u{n}" for n in range(schema.min_input))
    outputs = " ".join(["y", *(f"v{n}" for n in range(1, schema.min_output))])
    nodes = [
        node("Made", "x", inputs, domain="com.example"),
        node(op, inputs, outputs, name="n"),
    ]
    proto = model(
        nodes, [value("x")], [value("y")], opset=schema.since_version, domains={"com.example": 1}
    )
    with pytest.raises(tenonnx.NotSupported, match=rf"(?s)Made 'u0' .*{op} 'n' .*nothing runs"):
        tenonnx.InferenceSession(proto, options_with(Nothing), providers=["nothing"])
    assert not caplog.records


def test_a_provider_that_declines_gives_its_reason_in_the_placement() -> None:
    session = tenonnx.InferenceSession(RELU, options_with(Nothing), providers=["nothing", "cpu"])
    assert str(session.placement) == (
        "1 nodes: CPUExecutionProvider 1\n"
        "  Relu 'r' (ai.onnx, opset 21) on CPUExecutionProvider "
        "(NothingProvider: nothing runs here, Relu neither)"
    )
