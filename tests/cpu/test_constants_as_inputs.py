"""A constant that comes as an input, too: captures tell it from the constant that a step reads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper
from running import captures, floats, require_kernels, session

from models import BOOL, FLOAT, INT64, graph, node, value

require_kernels()

C = floats(4, 96)
W = floats(96, 96, seed=1, scale=0.1)


def ran(made: Any, x: Any) -> Any:
    return made.run(None, {"x": x})[0]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("form", ["whole", "part", "reversed", "read only"])
def test_fed(form: str, threads: int) -> None:
    nodes = [node("Add", "x c", "s"), node("MatMul", "s w", "m"), node("Add", "m c", "y")]
    shape = {"x": [None, 96]}
    made = session([*nodes, node("Identity", "c", "z")], {"x": C}, "y z", {"c": C, "w": W},
                   threads=threads, shapes=shape)  # fmt: skip
    known = made.run(["z"], {"x": C})[0]
    first = {"whole": known, "part": known[:1], "reversed": known[::-1], "read only": floats(4, 96)}
    first["read only"].flags.writeable = False
    for x in (first[form], first[form], floats(*first[form].shape, seed=3)):
        wanted = (x + C.astype(np.float64)) @ W + C
        assert np.allclose(ran(made, x), wanted, rtol=1e-5, atol=1e-5)
    assert sum(captures(made)) >= 1


@pytest.mark.parametrize("steps", [1, 3])
def test_a_loop_that_starts_with_one(steps: int) -> None:
    """Each turn: a becomes a + c, or that halved twice."""
    nodes = [node("Add", "a c", "b"), node("Mul", "b half", "d"), node("Mul", "d half", "e")]
    nodes = nodes[:steps]
    last = "b" if steps == 1 else "e"
    body = graph(
        [*nodes, node("Identity", "k", "go"), node("Identity", last, "next")],
        [value("i", INT64, []), value("k", BOOL, []), value("a", FLOAT, [4, 96])],
        [value("go", BOOL, []), value("next", FLOAT, [4, 96])],
    )
    loop = helper.make_node("Loop", ["n", "", "c"], ["y"], body=body)
    weights = {"c": C, "half": np.float32(0.5)}
    made = session([loop], {"n": np.array(5)}, "y", weights, kinds={"n": INT64})
    wanted = C.astype(np.float64)
    for _ in range(5):
        wanted = (wanted + C) / (1 if steps == 1 else 4)
    for _ in range(3):
        assert np.allclose(made.run(None, {"n": np.array(5)})[0], wanted, rtol=1e-6)


def test_a_branch_that_returns_one() -> None:
    branches = {
        "then_branch": graph([node("Identity", "c", "t")], [], [value("t", FLOAT, [4, 96])]),
        "else_branch": graph([node("Identity", "x", "e")], [], [value("e", FLOAT, [4, 96])]),
    }
    nodes = [helper.make_node("If", ["p"], ["u"], **branches), node("Mul", "u c", "y")]
    feeds = {"p": np.array(True), "x": floats(4, 96, seed=5)}
    made = session(nodes, feeds, "y", {"c": C}, kinds={"p": BOOL})
    for p in (True, True, False, False, True):
        [y] = made.run(None, {**feeds, "p": np.array(p)})
        assert np.array_equal(y, (C if p else feeds["x"]) * C)
