"""Valid graphs give the same at both levels, as they are and with their tail in a body."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import onnx
import pytest

from fuzz.bodies import KINDS, tail_moved
from fuzz.corpus import Seed, files, graphs
from fuzz.random_graphs import (
    NEAR,
    NEAR_FLOAT,
    Answers,
    answers,
    differ,
    examine,
    random_graph,
    widened,
)

GRAPHS = 40
"""A thousand more take a minute and a half: ``python -m fuzz.random_graphs --cases 1000``."""

SEEDS = {seed.name: seed for group in (graphs, files) for seed in group() if seed.feeds()}


@pytest.mark.parametrize("first", range(0, GRAPHS, 20))
def test_random_graphs(first: int) -> None:
    for number in range(first, first + 20):
        found = examine(number, *random_graph(number))
        assert not found, "\n".join([f"python -m fuzz.random_graphs --seed {number}:", *found])


def test_normalized_float16_is_nearer_to_the_exact_answer_than_node_after_node() -> None:
    """Two elements that are nearly equal: their difference is what rounding each node loses."""
    proto, feeds = random_graph(1819)
    assert examine(1819, proto, feeds) == []
    rounded, found = answers(proto, feeds, 0, plain=True), answers(proto, feeds, 99)
    exact = answers(*widened(proto, feeds), 0, plain=True)
    assert differ(rounded, exact_as(rounded, exact), NEAR[onnx.TensorProto.FLOAT16]) is not None
    assert differ(found, exact_as(found, exact), 1e-3) is None


def exact_as(found: Answers, exact: Answers) -> Answers:
    return [e.astype(f.dtype) for f, e in zip(found, exact, strict=True)]


@pytest.mark.parametrize("seed", SEEDS.values(), ids=SEEDS.keys())
def test_models_with_their_tail_in_every_kind_of_body(seed: Seed) -> None:
    proto, feeds = seed.proto(), seed.feeds()
    expected = answers(proto, feeds, 0, plain=True)
    for kind in KINDS:
        moved = tail_moved(proto, feeds, random.Random(f"{seed.name} {kind}"), kind)
        if moved is not None:
            found = answers(moved[0], moved[1], 99)
            assert (said := differ(found, expected, 10 * NEAR_FLOAT)) is None, f"{kind}: {said}"


def test_moved_tails_are_valid() -> None:
    """By onnx's checker, and onnxruntime's answers."""
    onnxruntime = pytest.importorskip("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    kinds = Counter[str]()
    for number in range(40):
        proto, feeds = random_graph(number)
        moved = tail_moved(proto, feeds, random.Random(number))
        if moved is None or any(array.dtype != np.float32 for array in feeds.values()):
            continue
        made, fed, kind = moved
        onnx.checker.check_model(made, full_check=True)
        session = onnxruntime.InferenceSession(
            made.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        found, expected = session.run(None, fed), answers(proto, feeds, 0, plain=True)
        assert (said := differ(found, expected, 2e-2)) is None, f"{number}, {kind}: {said}"
        kinds[kind] += 1
    assert kinds.keys() == set(KINDS)


def test_a_number_is_a_graph() -> None:
    for number in range(10):
        (first, one), (second, other) = random_graph(number), random_graph(number)
        assert first.SerializeToString() == second.SerializeToString()
        assert all(np.array_equal(one[name], other[name]) for name in one)
