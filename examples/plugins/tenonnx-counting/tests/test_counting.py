from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import onnx.parser
import pytest

import tenonnx

OTHERS = ["redundant-nodes", "cancel-transposes"]
"""Transforms that come with tenonnx and go further."""

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


def parsed(body: str, inputs: str = "float[2, 3, 4] x", outputs: str = "float[a, b, c] y") -> Any:
    return onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["": 21, "com.example": 1]>\n'
        f"test ({inputs}) => ({outputs}) {{ {body} }}"
    )


def operators(session: tenonnx.InferenceSession) -> list[str]:
    return [node.op_type for node in session.model.graph]


def test_it_is_found() -> None:
    (record,) = (r for r in tenonnx.default_plugins().records if r.name == "counting")
    assert record.error is None
    assert record.registered == [
        "provider CountingExecutionProvider",
        "provider counting",
        "operators of com.example",
        "transform merge-transposes",
    ]


def test_calls_are_counted_per_operator() -> None:
    calls: Counter[str] = Counter()
    model = parsed("h = Neg(x) k = Relu(h) y = Neg(k)")
    session = tenonnx.InferenceSession(model, providers=[("counting", {"calls": calls})])
    assert session.get_providers() == ["CountingExecutionProvider"]
    assert not calls
    (y,) = session.run(None, {"x": X})
    np.testing.assert_array_equal(y, np.zeros_like(X))
    assert calls == {"Neg": 2, "Relu": 1}


def test_calls_are_counted_per_node() -> None:
    calls: Counter[str] = Counter()
    model = parsed("[one] h = Neg(x) [two] y = Neg(h)")
    options = {"calls": calls, "by": "node"}
    tenonnx.InferenceSession(model, providers=[("counting", options)]).run(None, {"x": X})
    assert calls == {"one": 1, "two": 1}
    with pytest.raises(tenonnx.InvalidArgument, match="by is 'graph'; expected 'operator' or"):
        tenonnx.InferenceSession(model, providers=[("counting", {"by": "graph"})])


def test_threads_lose_no_call() -> None:
    calls: Counter[str] = Counter()
    session = tenonnx.InferenceSession(
        parsed("y = Neg(x)"), providers=[("counting", {"calls": calls})]
    )
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: session.run(None, {"x": X}), range(400)))
    assert calls == {"Neg": 400}


@pytest.mark.parametrize("provider", ["cpu", "counting"])
def test_soft_cap(provider: str) -> None:
    session = tenonnx.InferenceSession(
        parsed("y = com.example.SoftCap <cap: float = 5.0> (x)"), providers=[provider]
    )
    (y,) = session.run(None, {"x": X})
    np.testing.assert_allclose(y, 5 * np.tanh(X / 5), rtol=1e-6)
    assert y.dtype == np.float32


@pytest.mark.parametrize(
    ("body", "left"),
    [
        ("h = Transpose(x) k = Transpose(h) y = Neg(k)", ["Neg"]),
        ("h = Transpose(x) y = Transpose(h)", ["Identity"]),
        (
            "h = Transpose <perm: ints = [1, 2, 0]> (x) y = Transpose <perm: ints = [2, 0, 1]> (h)",
            ["Identity"],
        ),
        (
            "h = Transpose <perm: ints = [1, 2, 0]> (x) y = Transpose <perm: ints = [1, 2, 0]> (h)",
            ["Transpose"],
        ),
        ("h = Transpose <perm: ints = [0, 2, 1]> (x) y = Transpose(h)", ["Transpose"]),
        ("h = Transpose(x) y = Transpose <perm: ints = [0, 2, 1]> (h)", ["Transpose"]),
        ("h = Transpose(x) k = Transpose(h) l = Transpose(k) y = Neg(l)", ["Transpose", "Neg"]),
        ("h = Transpose(x) k = Neg(h) y = Transpose(k)", ["Transpose", "Neg", "Transpose"]),
    ],
)
def test_transposes_in_a_row_are_merged(body: str, left: list[str]) -> None:
    plain = tenonnx.SessionOptions(disabled_transforms=["merge-transposes", *OTHERS])
    expected = tenonnx.InferenceSession(parsed(body), plain).run(None, {"x": X})[0]
    alone = tenonnx.SessionOptions(disabled_transforms=OTHERS)
    session = tenonnx.InferenceSession(parsed(body), alone)
    assert operators(session) == left
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], expected)


def test_a_transpose_that_somebody_else_reads_stays() -> None:
    session = tenonnx.InferenceSession(
        parsed("h = Transpose(x) y = Transpose(h)", outputs="float[2, 3, 4] y, float[4, 3, 2] h")
    )
    y, h = session.run(None, {"x": X})
    np.testing.assert_array_equal(h, X.T)
    np.testing.assert_array_equal(y, X)
