"""``set_seed``: draws without a seed of their own repeat themselves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tenonnx
from models import FLOAT, model, node, value
from tenonnx.process import seeds


@pytest.fixture(autouse=True)
def restored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seeds, "_source", None)


def session() -> tenonnx.InferenceSession:
    nodes = [
        node("RandomUniform", "", "a", shape=[8]),
        node("RandomNormalLike", "x", "b"),
        node("Bernoulli", "x", "c"),
        node("Dropout", "x half training", "d"),
    ]
    outputs = [value(name, FLOAT, [8]) for name in "abcd"]
    weights = {"half": np.array(0.5, np.float32), "training": np.array(True)}
    return tenonnx.InferenceSession(model(nodes, [value("x", FLOAT, [8])], outputs, weights))


def draws(of: tenonnx.InferenceSession) -> Any:
    return np.array(of.run(None, {"x": np.full(8, 0.5, np.float32)}))


def test_draws_repeat_themselves_after_the_same_seed() -> None:
    tenonnx.set_seed(7)
    first = [draws(session()) for _ in range(2)]
    tenonnx.set_seed(7)
    again = [draws(session()) for _ in range(2)]
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first[0], first[1])
    tenonnx.set_seed(8)
    assert not np.array_equal(first[0], draws(session()))


def test_nodes_of_one_run_draw_differently() -> None:
    tenonnx.set_seed(7)
    proto = model(
        [node("RandomUniform", "", name, shape=[8]) for name in "ab"],
        [],
        [value(name, FLOAT, [8]) for name in "ab"],
    )
    a, b = tenonnx.InferenceSession(proto).run(None, {})
    assert not np.array_equal(a, b)


def test_a_nodes_own_seed_stays_its_own() -> None:
    proto = model(
        [node("RandomUniform", "", "a", shape=[8], seed=3.0)], [], [value("a", FLOAT, [8])]
    )
    (before,) = tenonnx.InferenceSession(proto).run(None, {})
    tenonnx.set_seed(7)
    (after,) = tenonnx.InferenceSession(proto).run(None, {})
    np.testing.assert_array_equal(before, after)


def test_without_a_seed_draws_differ() -> None:
    assert not np.array_equal(draws(session()), draws(session()))


@pytest.mark.parametrize("seed", ["1", 1.5, None, True])
def test_seeds_are_integers(seed: Any) -> None:
    with pytest.raises(tenonnx.InvalidArgument, match="expected an integer"):
        tenonnx.set_seed(seed)
