"""The operator Where on a kernel is as numpy's, and captured with the nodes around it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from running import Watch, captures, floats, require_kernels, session

from models import BOOL, node
from tenonnx_cpu.elementwise.typed import APPLY

require_kernels()


def chosen(kept: Any, x: Any, y: Any, threads: int = 1) -> Any:
    feeds = {"k": kept, "x": x, "y": y}
    nodes = [node("Where", "k x y", "z")]
    return session(nodes, feeds, "z", threads=threads, kinds={"k": BOOL}).run(None, feeds)[0]


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize(
    ("kept", "x", "y", "taken"),
    [
        ((2, 1, 6, 6), (), (2, 4, 6, 6), True),
        ((5, 40), (5, 40), (1,), True),
        ((7, 1), (1, 9), (7, 9), True),
        ((40, 300, 33), (40, 300, 33), (33,), True),
        ((1,), (), (), True),
        ((2, 1, 3, 1, 5), (5,), (), True),
        ((0, 4), (4,), (), False),
    ],
)
def test_elements(
    kept: Any, x: Any, y: Any, taken: bool, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    some, other = floats(*x, seed=1), floats(*y, seed=2)
    some.flat[:1] = np.nan
    which = np.random.default_rng(3).random(kept) < 0.5
    watch = Watch(APPLY, monkeypatch)
    found = chosen(which, some, other, threads)
    assert watch.calls == taken
    np.testing.assert_array_equal(found, np.where(which, some, other))


def test_elements_that_lie_apart() -> None:
    which = np.random.default_rng(3).random((30, 20)) < 0.5
    x, y = floats(20, 30), floats(30, 40, seed=1)[:, ::2]
    np.testing.assert_array_equal(chosen(which, x.T, y), np.where(which, x.T, y))


def test_it_parts_no_run() -> None:
    nodes = [
        node("Neg", "x", "a"), node("Where", "k low a", "b"), node("Softmax", "b", "c"),
        node("GatherElements", "c p", "z", axis=1),
    ]  # fmt: skip
    x, low = floats(6, 9), np.float32(-1e9)
    which = np.random.default_rng(3).random((6, 9)) < 0.5
    places = np.random.default_rng(4).integers(-9, 9, (6, 4))
    one = session(
        nodes, {"x": x, "k": which}, "z", {"low": low, "p": places}, kinds={"k": BOOL}
    )  # fmt: skip
    masked = np.where(which, low, -x)
    wanted = np.exp(masked - masked.max(1, keepdims=True))
    wanted = np.take_along_axis(wanted / wanted.sum(1, keepdims=True), places, 1)
    for _ in range(3):
        (z,) = one.run(None, {"x": x, "k": which})
        np.testing.assert_allclose(z, wanted, rtol=1e-5, atol=1e-7)
    assert captures(one) == [1]
