"""Nodes that depend on one byte become a table, whichever operators they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from running import Watch, session

from models import node
from tenonnx_cpu.int8 import table
from tenonnx_cpu.int8.table import LOOK_UP

WEIGHTS = {
    "s": np.float32(0.0625), "z": np.uint8(120), "t": np.float32(2**-8), "o": np.uint8(0),
    "u": np.float32(0.125), "q": np.int8(-3), "two": np.float32(2),
    "column": np.ones(7, np.float32),
}  # fmt: skip
OPEN = node("DequantizeLinear", "x s z", "d")


def codes(x: Any, scale: float, zero: int, low: int, high: int) -> Any:
    return np.clip(np.rint(x / scale) + zero, low, high)


def gate(d: Any) -> Any:
    return codes(np.clip(d * 0.25 + 0.5, 0, 1), 2**-8, 0, 0, 255) * 2**-8


HARD = [
    node("HardSigmoid", "d", "h", alpha=0.25, beta=0.5),
    node("QuantizeLinear", "h t o", "hq"),
    node("DequantizeLinear", "hq t o", "hd"),
    node("Mul", "d hd", "m"),
]
CASES = {
    "relu": ([node("Relu", "d", "m")], lambda d: np.maximum(d, 0)),
    "gate": (HARD, lambda d: d * gate(d)),
    "square": ([node("Mul", "d d", "p"), node("Div", "p two", "m")], lambda d: d * d / 2),
}


def both(nodes: Any, x: Any, outputs: str = "y") -> tuple[Any, Any]:
    made = session(nodes, {"x": x}, outputs, WEIGHTS, kinds={"x": 2, "y": 3, "d": 1, "a": 2})
    return made, made.run(None, {"x": x})


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("shape", [(256,), (2, 3, 5, 7), (300, 400)])
def test_bytes_are_looked_up(name: str, shape: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch(LOOK_UP, monkeypatch)
    nodes, function = CASES[name]
    x = np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8)
    made, (y,) = both([OPEN, *nodes, node("QuantizeLinear", "m u q", "y")], x)
    assert watch.calls == 1
    assert made.plan.source.count(" = k") == 1
    expected = codes(function((x.astype(np.float64) - 120) * 0.0625), 0.125, -3, -128, 127)
    assert y.dtype == np.int8
    assert np.array_equal(y, expected)


def test_numbers_that_others_read_are_made_too(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch(LOOK_UP, monkeypatch)
    x = np.arange(256, dtype=np.uint8)
    nodes = [OPEN, node("Relu", "d", "m"), node("QuantizeLinear", "m u q", "y")]
    _, (y, d) = both(nodes, x, "y d")
    assert watch.calls == 1
    assert np.array_equal(d, (x.astype(np.float32) - 120) / 16)
    assert np.array_equal(y, codes(np.maximum(d, 0), 0.125, -3, -128, 127))


def test_images_whose_channels_lie_last(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch(LOOK_UP, monkeypatch)
    x = np.random.default_rng(0).integers(0, 256, (2, 5, 7, 3)).astype(np.uint8)
    nodes = [node("Transpose", "x", "a", perm=[0, 3, 1, 2]), node("Relu", "d", "m")]
    nodes = [nodes[0], node("DequantizeLinear", "a s z", "d"), nodes[1]]
    _, (y, a) = both([*nodes, node("QuantizeLinear", "m u q", "y")], x, "y a")
    assert watch.calls == 1
    d = (a.astype(np.float32) - 120) / 16
    assert np.array_equal(y, codes(np.maximum(d, 0), 0.125, -3, -128, 127))


def test_what_depends_on_more_is_no_table(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch(LOOK_UP, monkeypatch)
    x = np.arange(7, dtype=np.uint8)
    _, (y,) = both([OPEN, node("Mul", "d column", "m"), node("QuantizeLinear", "m u q", "y")], x)
    assert watch.calls == 0
    assert np.array_equal(y, codes((x - 120.0) / 16, 0.125, -3, -128, 127))


def test_only_nodes_that_make_bytes_are_searched_from(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search from every node that follows took seconds for a chain of 300 DequantizeLinear."""
    asked: list[str] = []
    found = table.upstream
    monkeypatch.setattr(table, "upstream", lambda n, f: (asked.append(n.op_type), found(n, f))[1])
    chain = [node("Neg", "d" if not i else f"n{i - 1}", f"n{i}") for i in range(20)]
    nodes = [OPEN, *chain, node("QuantizeLinear", "n9 u q", "y"), node("Abs", "n19", "b")]
    both(nodes, np.arange(256, dtype=np.uint8), "y b")
    assert asked == ["QuantizeLinear"]


@pytest.mark.parametrize("kind", ["QLinearSigmoid", "QLinearLeakyRelu"])
def test_functions_of_bytes_are_looked_up(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch(LOOK_UP, monkeypatch)
    x = np.random.default_rng(0).integers(0, 256, (3, 50, 70)).astype(np.uint8)
    nodes = [node(kind, "x s z t o", "y", domain="com.microsoft")]
    made = session(
        nodes, {"x": x}, "y", WEIGHTS, kinds={"x": 2, "y": 2}, domains={"com.microsoft": 1}
    )
    (y,) = made.run(None, {"x": x})
    assert watch.calls == 1
    number = (x.astype(np.float64) - 120) * 0.0625
    wide = (
        1 / (1 + np.exp(-number)) if kind == "QLinearSigmoid" else np.maximum(number, number / 100)
    )
    assert np.array_equal(y, codes(wide, 2**-8, 0, 0, 255))


def test_a_gate_of_bytes_is_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch(LOOK_UP, monkeypatch)
    x = np.random.default_rng(0).integers(0, 256, (1, 5, 6, 70)).astype(np.uint8)
    nodes = [
        node("QLinearSigmoid", "x s z t o", "g", domain="com.microsoft"),
        node("QLinearMul", "x s z g t o s z", "y", domain="com.microsoft"),
    ]
    made = session(
        nodes, {"x": x}, "y", WEIGHTS, kinds={"x": 2, "y": 2}, domains={"com.microsoft": 1}
    )
    (y,) = made.run(None, {"x": x})
    assert watch.calls == 1
    number = (x.astype(np.float64) - 120) * 0.0625
    gate = codes(1 / (1 + np.exp(-number)), 2**-8, 0, 0, 255) * 2.0**-8
    assert np.array_equal(y, codes(number * gate, 0.0625, 120, 0, 255))


@pytest.mark.parametrize("shape", [(3, 5), (1, 4, 30, 40)])
def test_bytes_side_by_side(shape: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch(LOOK_UP, monkeypatch)
    x = np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8)
    nodes = [
        OPEN,
        node("DequantizeLinear", "x t o", "e"),
        node("Concat", "d e d", "m", axis=1),
        node("QuantizeLinear", "m s z", "y"),
    ]
    made = session(nodes, {"x": x}, "y", WEIGHTS, kinds={"x": 2, "y": 2})
    assert made.plan.source.count(" = k") == 1
    (y,) = made.run(None, {"x": x})
    assert watch.calls == 1
    other = codes(x * 2**-8, 0.0625, 120, 0, 255)
    assert np.array_equal(y, np.concatenate([x, other, x], 1))
