"""A model whose steps are captured, and runs of it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from running import floats, require_kernels, session

import tenonnx
from models import node
from tenonnx_cpu.capture import capturable, span

require_kernels()


WIDTH = 24
WEIGHTS = {
    "w": floats(WIDTH, WIDTH, seed=1, scale=0.2),
    "b": floats(WIDTH, seed=2),
    "scale": floats(WIDTH, seed=3),
    "split": np.array([0, 0, 4, 6]),
    "join": np.array([0, 0, -1]),
}
NODES = [
    node("MatMul", "x w", "product"),
    node("Add", "product b", "sum"),
    node("Relu", "sum", "rest"),
    node("Add", "rest x", "skip"),
    node("LayerNormalization", "skip scale b", "norm"),
    *(
        step
        for name in ("norm", "skip", "rest")
        for step in (
            node("Reshape", f"{name} split", f"{name}_heads"),
            node("Transpose", f"{name}_heads", f"{name}_turned", perm=[0, 2, 1, 3]),
        )
    ),
    node("Attention", "norm_turned skip_turned rest_turned", "seen"),
    node("Transpose", "seen", "back", perm=[0, 2, 1, 3]),
    node("Reshape", "back join", "joined"),
    node("Softmax", "joined", "soft"),
    node("Gemm", "flat w b", "line"),
    node("Erf", "soft", "y"),
]


@pytest.fixture(autouse=True)
def _compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENONNX_JIT", "1")


def opened(threads: int = 1) -> tenonnx.InferenceSession:
    feeds = given((2, 5))
    return session(NODES, feeds, "y skip line", WEIGHTS, threads=threads, opset=23)


def given(shape: tuple[int, int], seed: int = 0) -> dict[str, Any]:
    x = floats(*shape, WIDTH, seed=seed)
    return {"x": x, "flat": x[0] * 2}


@contextlib.contextmanager
def only_replays() -> Iterator[None]:
    """Fail where a run does what no capture does."""

    def refuse(_: Any) -> bool:
        raise AssertionError("a step is no replay")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(span, "key_of", refuse)
        patch.setattr(capturable, "key_of", refuse)
        yield


def uncaptured(monkeypatch: pytest.MonkeyPatch, threads: int = 1) -> tenonnx.InferenceSession:
    with monkeypatch.context() as patch:
        patch.setattr(capturable, "COUNTED", False)
        return opened(threads)


def same(found: list[Any], wanted: list[Any]) -> None:
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(one, other)


def nothing(*_: Any) -> None:
    raise AssertionError
