"""Broken providers: the first line of the error names who is to blame, and where."""

# ruff: noqa: ARG001, ARG005 - signatures are those of the interface

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import pytest

import tenonnx
from models import FLOAT, model, node, value
from tenonnx import Provider, Step
from tenonnx.errors import TenonnxError

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "Neg": np.negative,
    "Mul": np.multiply,
    "Sqrt": np.sqrt,
}

MUL = r"Mul 'k' \(ai.onnx, opset 21\)"
HERE = r"\(test_broken_providers.py, line \d+"


def proto() -> onnx.ModelProto:
    return model(
        [node("Neg", "x", "h"), node("Mul", "h h", "k"), node("Sqrt", "k", "y")],
        [value("x", FLOAT, [2, 2])],
        [value("y", FLOAT, [2, 2])],
    )


class Vec(Provider):
    """A provider of three operators, without a fault."""

    name = "VecExecutionProvider"
    aliases = ("vec",)

    def supports(self, node: Any) -> Any:
        return True if node.op_type in FUNCTIONS else "it has three operators"

    def step(self, node: Any) -> Step:
        return Step(FUNCTIONS[node.op_type], node.inputs, node.outputs, (node,))

    def compile(self, segment: Any) -> Any:
        return [self.step(node) for node in segment.nodes]


def broken(**methods: Any) -> type[Provider]:
    return type("Broken", (Vec,), methods)


def with_step(call: Callable[..., Any]) -> type[Provider]:
    """A provider whose Mul is ``call``."""

    def step(self: Vec, node: Any) -> Step:
        chosen = call if node.op_type == "Mul" else FUNCTIONS[node.op_type]
        return Step(chosen, node.inputs, node.outputs, (node,))

    return broken(step=step)


def raises(error: BaseException) -> Callable[..., Any]:
    def fail(*arguments: Any) -> Any:
        raise error

    return fail


def steps(change: Callable[[list[Step]], Any]) -> type[Provider]:
    """A provider whose steps are changed."""
    return broken(compile=lambda self, segment: change([self.step(n) for n in segment.nodes]))


def declined(_: Any, node: Any) -> Any:
    return None


CASES: dict[str, tuple[type[Provider], str]] = {
    "supports raises": (
        broken(supports=lambda self, node: node.nothing),
        rf"VecExecutionProvider failed when asked whether it supports Neg 'h' .*: "
        rf"AttributeError: 'Node' object has no attribute 'nothing' {HERE}",
    ),
    "supports returns nothing": (
        broken(supports=declined),
        r"3 nodes have no provider that runs them:",
    ),
    "compile raises": (
        broken(compile=lambda self, segment: {}["missing"]),
        rf"VecExecutionProvider cannot compile Neg 'h' .*: KeyError: 'missing' {HERE}",
    ),
    "compile returns nothing": (
        broken(compile=lambda self, segment: None),
        r"VecExecutionProvider compiled Neg 'h' .*: expected a list of Steps, got None",
    ),
    "compile returns no steps": (
        broken(compile=lambda self, segment: [1]),
        r"VecExecutionProvider compiled Neg 'h' .*: expected a list of Steps, got \[1\]",
    ),
    "compile is empty": (
        broken(compile=lambda self, segment: []),
        r"VecExecutionProvider compiled Sqrt 'y' .* without producing 'y'",
    ),
    "compile leaves a node out": (
        steps(lambda made: made[:-1]),
        r"VecExecutionProvider compiled Sqrt 'y' .* without producing 'y'",
    ),
    "compile reverses": (
        steps(lambda made: made[::-1]),
        r"VecExecutionProvider compiled Sqrt 'y' .* before the step that makes 'k'",
    ),
    "init raises": (
        broken(__init__=raises(RuntimeError("no device today"))),
        r"VecExecutionProvider failed to start: RuntimeError: no device today",
    ),
    "init forgets the base class": (
        broken(__init__=lambda self, *arguments: None),
        r"Broken.__init__ does not call super\(\).__init__",
    ),
    "check raises": (
        broken(check=classmethod(lambda cls: cls.nothing)),
        r"none of the providers asked for can be used here: VecExecutionProvider: "
        r"its check failed: AttributeError: .*'nothing'",
    ),
    "check returns True": (
        broken(check=classmethod(lambda cls: True)),
        r".*VecExecutionProvider: its check returned True; expected None, or the reason",
    ),
    "division by zero": (
        with_step(raises(ZeroDivisionError("division by zero"))),
        rf"{MUL} on VecExecutionProvider: ZeroDivisionError: division by zero {HERE}; "
        rf"A 'h' float32",
    ),
    "wrong arguments": (
        with_step(lambda a: a),
        rf"{MUL} on VecExecutionProvider: TypeError: .*takes 1 positional argument but 2 .* {HERE}",
    ),
    "key error": (
        with_step(raises(KeyError("scale"))),
        rf"{MUL} on VecExecutionProvider: KeyError: 'scale' {HERE}",
    ),
    "value error": (
        with_step(raises(ValueError("too small"))),
        rf"{MUL} on VecExecutionProvider: ValueError: too small {HERE}",
    ),
    "no message": (
        with_step(raises(StopIteration())),
        rf"{MUL} on VecExecutionProvider: StopIteration {HERE}",
    ),
    "an assertion": (
        with_step(raises(AssertionError("rows"))),
        rf"{MUL} on VecExecutionProvider: AssertionError: rows {HERE}",
    ),
    "attribute error": (
        with_step(lambda a, b: a.rows),
        rf"{MUL} on VecExecutionProvider: AttributeError: .*'rows' {HERE}",
    ),
    "numpy's error": (
        with_step(lambda a, b: a.reshape(3)),
        rf"{MUL} on VecExecutionProvider: ValueError: cannot reshape .* {HERE}",
    ),
    "returns nothing": (
        with_step(lambda a, b: None),
        rf"{MUL} on VecExecutionProvider returned nothing; expected 'k' float32\[2, 2\], "
        rf"for which Sqrt 'y' .* failed",
    ),
    "returns text": (
        with_step(lambda a, b: np.array(["a", "b"])),
        rf"{MUL} on VecExecutionProvider returned <U1\[2\]; expected 'k' float32\[2, 2\]",
    ),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("behind", [(), ("cpu",)], ids=["alone", "before the CPU"])
def test_first_line(name: str, behind: Sequence[str]) -> None:
    provider, expected = CASES[name]
    if behind and name.startswith(("supports returns", "check ")):
        pytest.skip("the CPU's provider takes the nodes")

    class Plugin:
        @tenonnx.hookimpl
        def register_providers(self, register: Any) -> None:
            register(provider)

    plugins = tenonnx.PluginSet()
    plugins.register(Plugin())
    options = tenonnx.SessionOptions(plugins=plugins)
    with pytest.raises(TenonnxError) as caught:
        tenonnx.InferenceSession(proto(), options, providers=["vec", *behind]).run(
            None, {"x": np.ones((2, 2), np.float32)}
        )
    first = str(caught.value).splitlines()[0]
    assert "?[?]" not in first
    assert re.match(expected, first), first
