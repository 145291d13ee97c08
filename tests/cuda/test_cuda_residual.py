"""Sums and their normalizations as one step."""

from __future__ import annotations

from typing import Any

import hosted
import numpy as np
import pytest
from emulated import session
from kernel_calls import FLOATS, close

from models import model, node, value

pytestmark = pytest.mark.skipif(hosted.COMPILER is None, reason="no C++ compiler")


def normal(x: Any, scale: Any, bias: Any = None) -> Any:
    mean = 0 if bias is None else x.mean(-1, keepdims=True)
    deviation = np.sqrt(((x - mean) ** 2).mean(-1, keepdims=True) + 1e-5)
    return (x - mean) / deviation * scale + (0 if bias is None else bias)


def made(kind: Any, nodes: Any, outputs: list[str], shape: tuple[int, ...] = (2, 3, 8)) -> Any:
    element = 1 if kind == np.float32 else 10 if kind == np.float16 else 16
    draws = np.random.default_rng(1)
    weights = {name: draws.standard_normal(8).astype(kind) for name in ("scale", "bias")}
    read = {name for each in nodes for name in each.input}
    proto = model(
        nodes,
        [value("x", element, (2, 3, 8)), value("r", element, shape)],
        [value(name, element, (2, 3, 8)) for name in outputs],
        {name: weight for name, weight in weights.items() if name in read},
        opset=23,
        ir_version=11,
    )
    opened = session(proto, graph_optimization_level=0)
    x, r = (draws.standard_normal(s).astype(kind) for s in ((2, 3, 8), shape))
    return opened, opened.run(None, {"x": x, "r": r}), (x, r, weights["scale"], weights["bias"])


@pytest.mark.parametrize("kind", FLOATS, ids=str)
def test_a_sum_that_others_read(kind: Any) -> None:
    """Before the normalization comes a reader of the sum."""
    nodes = [
        node("Add", "x r", "s"),
        node("Neg", "s", "minus"),
        node("RMSNormalization", "s scale", "n", epsilon=1e-5),
    ]
    opened, (minus, n), given = made(kind, nodes, ["minus", "n"])
    x, r, scale, _ = (a.astype(np.float64) for a in given)
    assert [len(step.nodes) for step in opened.plan.steps] == [2, 1]
    close(minus, -(x + r), kind)
    close(n, normal(x + r, scale), kind, 2)


@pytest.mark.parametrize("shape", [(2, 3, 8), (8,)], ids=str)
@pytest.mark.parametrize("order", ["x r", "r x"])
def test_a_sum_that_is_only_normalized(shape: tuple[int, ...], order: str) -> None:
    nodes = [node("Add", order, "s"), node("LayerNormalization", "s scale bias", "n")]
    opened, (n,), given = made(np.float32, nodes, ["n"], shape)
    x, r, scale, bias = (a.astype(np.float64) for a in given)
    (step,) = opened.plan.steps
    assert len(step.nodes) == 2
    close(n, normal(x + r, scale, bias), np.float32, 4)


def test_where_the_kernel_does_not_fit_the_nodes_run() -> None:
    nodes = [node("Add", "x r", "s"), node("LayerNormalization", "s scale bias", "n")]
    opened, (n,), given = made(np.float32, nodes, ["n"], (3, 1))
    x, r, scale, bias = (a.astype(np.float64) for a in given)
    assert len(opened.plan.steps) == 1
    close(n, normal(x + r, scale, bias), np.float32, 4)


def test_two_norms_of_one_sum() -> None:
    nodes = [
        node("Add", "x r", "s"),
        node("RMSNormalization", "s scale", "n"),
        node("LayerNormalization", "s scale bias", "m"),
    ]
    opened, (n, m), given = made(np.float32, nodes, ["n", "m"])
    x, r, scale, bias = (a.astype(np.float64) for a in given)
    assert [len(step.nodes) for step in opened.plan.steps] == [2, 1]
    close(n, normal(x + r, scale), np.float32, 4)
    close(m, normal(x + r, scale, bias), np.float32, 4)
