"""``SessionOptions(check=True)``: the first node that computes wrongly is named with its inputs."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import tenonnx
from hooks import options_with
from models import FLOAT, model, node, value
from tenonnx import Provider, Step

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "Neg": np.negative,
    "Mul": np.multiply,
    "Sqrt": np.sqrt,
}
X = np.array([[-1, 2], [3, -4]], np.float32)


class Held:
    """An array of the device."""

    def __init__(self, array: Any) -> None:
        self.array = np.array(array)


class There:
    """A device whose arrays are no numpy arrays."""

    id = "there"

    def upload(self, array: Any) -> Any:
        return Held(array)

    def download(self, array: Any) -> Any:
        if not isinstance(array, Held):
            raise TypeError("no array of this device")
        return array.array

    def stack(self, arrays: Any, axis: int) -> Any:
        return Held(np.stack([each.array for each in arrays], axis))


class Stays(np.ndarray[Any, Any]):
    """An array that a step returns as numpy's."""


class Away(Provider):
    """Three operators on a device, of which one may be another one's."""

    name = "AwayExecutionProvider"
    aliases = ("away",)
    unasked = False
    device = There()
    mul: Callable[..., Any] = staticmethod(np.multiply)

    def supports(self, node: Any) -> Any:
        return True if node.op_type in FUNCTIONS else "it has three operators"

    def compile(self, segment: Any) -> Any:
        return [self.step(node) for node in segment.nodes]

    def step(self, node: Any) -> Step:
        function = self.mul if node.op_type == "Mul" else FUNCTIONS[node.op_type]

        def call(*arrays: Any) -> Any:
            made = function(*(each.array for each in arrays))
            return made.view(np.ndarray) if isinstance(made, Stays) else Held(made)

        return Step(call, node.inputs, node.outputs, (node,), device=self.device)


def proto(shape: Sequence[Any] = (2, 2)) -> onnx.ModelProto:
    return model(
        [node("Neg", "x", "h"), node("Mul", "h h", "k", name="m"), node("Sqrt", "k", "y")],
        [value("x", FLOAT, shape)],
        [value("y", FLOAT, shape)],
    )


def session(provider: type[Provider], source: Any = None) -> tenonnx.InferenceSession:
    options = options_with(provider)
    options.check = True
    return tenonnx.InferenceSession(source or proto(), options, providers=[provider.name, "cpu"])


WRONG: dict[str, tuple[Callable[..., Any], str]] = {
    "value": (
        lambda a, b: a * b + np.float32(0.5),
        "'k' differs in 4 of 4 elements by 0.5 at most",
    ),
    "nan": (lambda a, b: a * b * np.float32(np.nan), "4 NaN or infinite ones"),
    "shape": (lambda a, b: (a * b).reshape(4), "the shape of 'k' float32[2, 2] is [4]"),
    "dtype": (lambda a, b: (a * b).astype(float), "'k' is float64; the model says float32"),
    "device": (lambda a, b: (a * b).view(Stays), "'k' is no array of there"),
    "in place": (lambda a, b: [np.copyto(a, 0), a * b][1], "'k' differs in 4 of 4 elements"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_the_node_is_named_with_its_inputs(wrong: str) -> None:
    function, said = WRONG[wrong]
    faulty = type("Faulty", (Away,), {"mul": staticmethod(function)})
    with pytest.raises(tenonnx.RuntimeException, match=re.escape(said)) as raised:
        session(faulty).run(None, {"x": X})
    first = str(raised.value).splitlines()[0]
    assert first.startswith("Mul 'm' (ai.onnx, opset 21) on AwayExecutionProvider: ")
    assert "it read 'h' float32[2, 2] -3 to 4" in first


def test_nothing_is_wrong_and_nothing_is_cached() -> None:
    opened = session(Away)
    np.testing.assert_array_equal(opened.run(None, {"x": X})[0], np.abs(X))
    assert {step.device.id for step in opened.plan.steps} == {"there"}


@pytest.mark.parametrize(
    ("tolerances", "is_right"),
    [
        ({"Mul": (0.0, 0.6)}, True),
        ({"m": (0.0, 0.6)}, True),
        ({"M*": (0.0, 0.6)}, True),
        ({"m": (0.0, 0.4), "Mul": (0.0, 0.6)}, False),
        ({"Sqrt": (0.0, 0.6)}, False),
        ({"Mul": 0.4}, False),  # of the least, 1, it is half
        ({"Mul": 0.6}, True),
        ({}, False),
    ],
)
def test_a_node_has_a_tolerance_of_its_own(tolerances: Any, is_right: bool) -> None:
    options = options_with(type("Rough", (Away,), {"mul": staticmethod(WRONG["value"][0])}))
    options.check = tolerances
    opened = tenonnx.InferenceSession(proto(), options, providers=["away", "cpu"])
    if is_right:
        np.testing.assert_array_equal(opened.run(None, {"x": X})[0], np.sqrt(X * X + 0.5))
    else:
        with pytest.raises(tenonnx.RuntimeException, match="'k' differs in"):
            opened.run(None, {"x": X})


@pytest.mark.parametrize("wrong", [{"Mul": "0.1"}, {"Mul": -1}, {"Mul": (1, 2, 3)}, {1: 1}, "Mul"])
def test_tolerances_that_are_none(wrong: Any) -> None:
    with pytest.raises(
        TypeError, match=r"SessionOptions\.check is .*; expected True, False, or tol"
    ):
        tenonnx.SessionOptions(check=wrong)


def test_the_plan_is_not_cached(tmp_path: Path) -> None:
    onnx.save(proto(), tmp_path / "model.onnx")
    options = tenonnx.SessionOptions(check=True)
    opened = tenonnx.InferenceSession(tmp_path / "model.onnx", options)
    assert opened.load_times.uncached == "the options have check"


class Fused(Away):
    """All three nodes as one step, wrong as a whole, right one by one or not."""

    parts_too = False

    def compile(self, segment: Any) -> Any:
        parts = super().compile(segment)
        wrong = self.parts_too

        def call(array: Any) -> Any:
            return Held(np.abs(array.array) + 1)

        if wrong:
            parts[1] = parts[1].called(lambda a, b: Held(a.array * b.array + 1))
        ends = segment.inputs, segment.outputs
        return [Step(call, *ends, segment.nodes, device=self.device, parts=tuple(parts))]


@pytest.mark.parametrize(
    ("parts_too", "said"),
    [(False, "Neg 'h' (ai.onnx, opset 21), Mul 'm'"), (True, "Mul 'm' (ai.onnx, opset 21) on")],
)
def test_a_step_of_several_nodes(parts_too: bool, said: str) -> None:
    faulty = type("Faulty", (Fused,), {"parts_too": parts_too})
    with pytest.raises(tenonnx.RuntimeException) as raised:
        session(faulty).run(None, {"x": X})
    assert str(raised.value).startswith(said)


def test_what_the_host_does_not_run_is_held_to_types_and_nan() -> None:
    own = model(
        [node("Own", "x", "y", name="o", domain="com.example")],
        [value("x", FLOAT, [2, 2])],
        [value("y", FLOAT, [2, 2])],
        domains={"com.example": 1},
    )
    for given, said in ((np.sqrt, "has NaN, and what it was made of has none"), (np.abs, None)):
        functions = {
            "supports": lambda _, node: node.op_type == "Own" or "no",
            "mul": staticmethod(given),
            "step": lambda self, node, given=given: Step(
                lambda a: Held(given(a.array)),
                node.inputs,
                node.outputs,
                (node,),
                device=self.device,
            ),
        }
        opened = session(type("Owning", (Away,), functions), own)
        if said is None:
            np.testing.assert_array_equal(opened.run(None, {"x": X})[0], np.abs(X))
            continue
        with np.errstate(invalid="ignore"), pytest.raises(tenonnx.RuntimeException, match=said):
            opened.run(None, {"x": X})


def test_in_a_loop_and_beside_random_numbers() -> None:
    body = onnx.parser.parse_graph("""
        b (int64 i, bool c, float[2, 2] s) => (bool c2, float[2, 2] s2) {
            c2 = Identity(c)  t = Mul(s, s)  r = RandomNormalLike(s)  q = Mul(r, r)  s2 = Neg(t)
        }
    """)
    source = model(
        [node("Loop", "n _ x", "y", body=body)],
        [value("x", FLOAT, [2, 2])],
        [value("y", FLOAT, [2, 2])],
        {"n": np.int64(2)},
    )
    np.testing.assert_allclose(session(Away, source).run(None, {"x": X})[0], -(X**4))
    faulty = type("Faulty", (Away,), {"mul": staticmethod(lambda a, b: a * b * 2)})
    with pytest.raises(tenonnx.RuntimeException, match=r"Mul 't'.* 't' differs in 4 of 4"):
        session(faulty, source).run(None, {"x": X})
