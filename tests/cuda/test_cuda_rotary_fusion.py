"""Rotary embeddings that are written as slices, products and a sum."""

from __future__ import annotations

from typing import Any

import hosted
import numpy as np
import pytest
from emulated import session
from kernel_calls import FLOATS, close

from models import model, node, value

pytestmark = pytest.mark.skipif(hosted.COMPILER is None, reason="no C++ compiler")

NODES = [
    node("Slice", "x zero half axis", "low"),
    node("Slice", "x half end axis", "high"),
    node("Neg", "high", "minus"),
    node("Concat", "minus low", "other", axis=-1),
    node("Mul", "cos x", "straight"),
    node("Mul", "other sin", "crossed"),
    node("Add", "straight crossed", "y"),
]
LIMITS = {"zero": [0], "half": [4], "end": [np.iinfo(np.int64).max], "axis": [3]}


def opened(kind: Any, waves: tuple[int, ...], nodes: Any = NODES, **limits: Any) -> Any:
    """A model whose x is turned from [2, 3, 5, 8] first, so that it does not lie together."""
    element = 1 if kind == np.float32 else 10 if kind == np.float16 else 16
    given = [value("x_", element, (2, 5, 3, 8)), value("cos", element, waves)]
    given.append(value("sin", element, waves))
    numbers = {name: np.array(limit, np.int64) for name, limit in {**LIMITS, **limits}.items()}
    first = node("Transpose", "x_", "x", perm=[0, 2, 1, 3])
    made = model([first, *nodes], given, [value("y", element, (2, 3, 5, 8))], numbers)
    return session(made, graph_optimization_level=0)


def run(opened: Any, kind: Any, waves: tuple[int, ...], cut: int = 4) -> tuple[Any, Any]:
    draws = np.random.default_rng(0)
    x, cos, sin = (draws.standard_normal(s).astype(kind) for s in ((2, 5, 3, 8), waves, waves))
    (y,) = opened.run(None, {"x_": x, "cos": cos, "sin": sin})
    x, cos, sin = (a.astype(np.float64) for a in (x.swapaxes(1, 2), cos, sin))
    return y, x * cos + np.concatenate([-x[..., cut:], x[..., :cut]], -1) * sin


@pytest.mark.parametrize("kind", FLOATS, ids=str)
@pytest.mark.parametrize("waves", [(2, 1, 5, 8), (5, 8), (2, 3, 5, 8)], ids=str)
def test_it_is_one_step(kind: Any, waves: tuple[int, ...]) -> None:
    made = opened(kind, waves)
    assert [len(step.nodes) for step in made.plan.steps] == [1, len(NODES)]
    y, expected = run(made, kind, waves)
    close(y, expected, kind, 2)


@pytest.mark.parametrize(
    "limits", [{"half": [3]}, {"end": [7]}, {"axis": [2]}, {"zero": [1]}], ids=str
)
def test_other_cuts_are_no_halves(limits: Any) -> None:
    made = opened(np.float32, (5, 8), **limits)
    steps = max(len(step.nodes) for step in made.plan.steps)
    assert steps < len(NODES) or limits == {"half": [3]}


@pytest.mark.parametrize("share", [2, 4])
def test_a_half_may_be_computed_from_the_shape(share: int) -> None:
    """A fourth is no half, and leaves the nodes to run."""
    nodes = [
        node("Shape", "x", "shape"),
        node("Gather", "shape axis", "size"),
        node("Div", "size share", "part"),
        *(
            node(n.op_type, " ".join(n.input).replace("half", "part"), n.output[0])
            for n in NODES[:3]
        ),
        *NODES[3:],
    ]
    made = opened(np.float32, (5, 8), nodes, share=[share])
    assert max(len(step.nodes) for step in made.plan.steps) == len(NODES)
    y, expected = run(made, np.float32, (5, 8), 8 // share)
    close(y, expected, np.float32, 2)


def test_where_the_kernel_does_not_fit_the_nodes_run() -> None:
    """Waves of one number each are broadcast along the last axis."""
    made = opened(np.float32, (5, 1))
    assert len(made.plan.steps) == 2
    y, expected = run(made, np.float32, (5, 1))
    close(y, expected, np.float32, 2)


def test_halves_that_others_read_stay() -> None:
    nodes = [*NODES[:-1], node("Add", "straight crossed", "sum"), node("Add", "sum other", "y")]
    made = opened(np.float32, (5, 8), nodes)
    assert all(len(step.nodes) < len(NODES) for step in made.plan.steps)
