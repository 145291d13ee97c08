from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from running import Watch, session

from models import node
from tenonnx_cpu.elementwise import typed

DOUBLE = 11
ODD = [0, -0.0, 1, -2.5, np.nan, np.inf, -np.inf, 5e-324, 1e308, -1e-300]
MEANINGS: dict[str, Any] = {
    "Abs": np.abs,
    "Neg": np.negative,
    "Relu": lambda x: np.maximum(x, 0),
    "Sqrt": np.sqrt,
    "Add": np.add,
    "Div": np.divide,
    "Max": np.maximum,
    "Min": np.minimum,
    "Mul": np.multiply,
    "Sub": np.subtract,
}


@pytest.mark.parametrize("op", MEANINGS)
@pytest.mark.parametrize("size", [(100,), (5, 20), (400, 250)], ids=str)
def test_doubles_are_numpys(
    op: str, size: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = Watch(typed.APPLY, monkeypatch)
    x, z = (np.resize(each.reshape(-1), size) for each in np.meshgrid(ODD, ODD))
    given = {"x": x} if op in ("Abs", "Neg", "Relu", "Sqrt") else {"x": x, "z": z}
    kinds = {"x": DOUBLE, "z": DOUBLE, "y": DOUBLE}
    one = session([node(op, " ".join(given), "y")], given, "y", kinds=kinds)
    with np.errstate(all="ignore"):
        wanted = MEANINGS[op](*given.values())
    for _ in range(3):
        np.testing.assert_array_equal(one.run(None, given)[0], wanted)
    assert watched.calls


def test_a_chain_whose_values_have_no_types_is_of_doubles(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watch(typed.APPLY, monkeypatch)
    names = ["x", *(f"v{i}" for i in range(60)), "y"]
    nodes = [node(("Neg", "Relu")[i % 2], *names[i : i + 2]) for i in range(61)]
    x = np.array([1.5, -2.0, np.nan])
    one = session(nodes, {"x": x}, "y", kinds={"x": DOUBLE, "y": DOUBLE})
    wanted = x
    for i in range(61):
        wanted = MEANINGS[nodes[i].op_type](wanted)
    np.testing.assert_array_equal(one.run(None, {"x": x})[0], wanted)
    assert watched.calls == 61


def test_shapes_broadcast() -> None:
    feeds = {"x": np.ones((3, 4)), "z": np.arange(4.0)}
    kinds = {"x": DOUBLE, "z": DOUBLE, "y": DOUBLE}
    one = session([node("Add", "x z", "y")], feeds, "y", kinds=kinds)
    for _ in range(3):
        assert one.run(None, feeds)[0].tolist() == [[1, 2, 3, 4]] * 3
