"""Long steps of numpy's are stopped within; those that are cut have the same results."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from onnx.helper import np_dtype_to_tensor_dtype

import tenonnx
from models import FLOAT, model, node, value
from tenonnx_array import cumulative, einsum, interpolate, products, search

SOON, LATER = 1.0, 0.05
"""Seconds of computing until a step is stopped, and of waiting until it is told so."""

DRAW = np.random.default_rng(0)


def floats(*shape: int) -> Any:
    return DRAW.standard_normal(shape, np.float32)


STEPS: dict[str, Callable[[], tuple[Any, Any, dict[str, Any], int]]] = {
    "TfIdfVectorizer": lambda: (
        node("TfIdfVectorizer", "x", "y", max_gram_length=2, min_gram_length=1, mode="TF",
             max_skip_count=5000, ngram_counts=[0, 1], ngram_indexes=[0, 1], pool_int64s=[1, 1, 2]),
        DRAW.integers(0, 3, 10_000), {}, FLOAT,
    ),
    "RegexFullMatch": lambda: (
        node("RegexFullMatch", "x", "y", pattern="(a+)+$"),
        np.array(["a" * 50 + "!"] * 200_000, object), {}, 9,
    ),
    "CumSum": lambda: (
        node("CumSum", "x k", "y"), np.zeros(20_000_000, np.float32), {"k": np.array(0)}, FLOAT,
    ),
    "TopK": lambda: (
        node("TopK", "x k", "y z"), floats(1000, 5000), {"k": np.array([2000])}, FLOAT,
    ),
    "Einsum": lambda: (
        node("Einsum", "x w", "y", equation="bij,kj->bik"), floats(60, 100, 1500),
        {"w": floats(2000, 1500)}, FLOAT,
    ),
    "Resize": lambda: (
        node("Resize", "x _ s", "y", mode="cubic"), floats(80, 8, 64, 64),
        {"s": np.array([1, 1, 4, 4], np.float32)}, FLOAT,
    ),
    "Conv": lambda: (
        node("Conv", "x w", "y"), floats(40, 16, 100, 100), {"w": floats(32, 16, 5, 5)}, FLOAT,
    ),
    "Erf": lambda: (node("Erf", "x", "y"), floats(20_000_000), {}, FLOAT),
    "Softmax": lambda: (node("Softmax", "x", "y"), floats(4000, 10_000), {}, FLOAT),
    "Transpose": lambda: (
        node("Transpose", "x", "y", perm=[2, 1, 0]), floats(400, 400, 400), {}, FLOAT,
    ),
}  # fmt: skip
"""A node, what takes it half a second or more, its constants, and the kind of its result."""


@contextmanager
def terminated(options: tenonnx.RunOptions) -> Iterator[None]:
    timer = threading.Timer(LATER, lambda: setattr(options, "terminate", True))
    timer.start()
    yield
    timer.join()


@pytest.mark.parametrize("name", STEPS)
def test_stopped_within_a_step_and_the_next_run_is_right(name: str) -> None:
    step, x, weights, kind = STEPS[name]()
    element = 8 if x.dtype == object else np_dtype_to_tensor_dtype(x.dtype)
    ends = [value("x", element, [None] * x.ndim)], [value("y", kind, None)]
    session = tenonnx.InferenceSession(model([step], *ends, weights, opset=20))
    few = {"x": x[:2]}
    (wanted,) = session.run(None, few)
    options, start = tenonnx.RunOptions(), time.process_time()
    with terminated(options), pytest.raises(tenonnx.Fail, match="terminate is set"):
        session.run(None, {"x": x}, options)
    assert time.process_time() - start < LATER + SOON
    session._options.time_limit, start = LATER, time.process_time()
    with pytest.raises(tenonnx.Fail, match="takes longer than"):
        session.run(None, {"x": x})
    assert time.process_time() - start < LATER + SOON
    session._options.time_limit = None
    np.testing.assert_array_equal(session.run(None, few)[0], wanted)


EQUATIONS = [
    "ij,jk->ik", "ij,jk->ki", "bij,bjk->bik", "...ij,...jk->...ik", "i...,i...->...", "ij,ij->",
    "ii,ij->ij", "i j, j k -> k", "ij,jk", "b...d,d->b...", "...,ij->i...j", "i,j->ij", "ij,kl->ik",
]  # fmt: skip


@pytest.mark.parametrize("equation", EQUATIONS)
@pytest.mark.parametrize("longest", [1, 7, 33])
@pytest.mark.parametrize("broadcast", [False, True])
def test_pieces_are_the_sum_of_products(
    equation: str, longest: int, broadcast: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = dict(zip("bijkld", (3, 4, 4, 2, 3, 2), strict=True))
    terms = equation.replace(" ", "").split("->")[0].split(",")
    shapes = [
        [n for each in term.replace("...", ".") for n in ([2, 3] if each == "." else [sizes[each]])]
        for term in terms
    ]
    a, b = (DRAW.integers(-9, 9, shape).astype(np.float64) for shape in shapes)
    if broadcast and "ii" not in equation:
        a = a[:1]
    monkeypatch.setattr(products, "LONGEST", longest * products.SLOWER)
    found = einsum.einsum(np, equation, [a, b])
    np.testing.assert_array_equal(found, np.einsum(equation, a, b))


@pytest.mark.parametrize("shape", [(30,), (5, 6), (1, 30), (30, 1), (3, 4, 5)])
@pytest.mark.parametrize("longest", [1, 4, 7])
def test_pieces_are_the_running_sum_and_the_greatest(
    shape: tuple[int, ...], longest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = DRAW.integers(0, 5, shape).astype(np.float32) / 3

    def results() -> list[Any]:
        found: list[Any] = []
        for axis in range(x.ndim):
            at = np.array(axis)
            found += [
                cumulative.cumsum(np, x, at, exclusive=exclusive, reverse=reverse)
                for exclusive in (0, 1)
                for reverse in (0, 1)
            ]
            for k in (1, x.shape[axis]):
                found += search.top_k(np, x, k, axis, 1)
        return found

    wanted = results()
    for module in (cumulative, search):
        monkeypatch.setattr(module, "LONGEST", longest)
    for each, other in zip(results(), wanted, strict=True):
        np.testing.assert_array_equal(each, other)


@pytest.mark.parametrize(
    ("equation", "a", "b"),
    [
        ("ij,jk->jk", (3, 4), (5, 6)),
        ("ij,jk->jk", (3, 5), (4, 6)),
        ("ii,ij->ij", (3, 4), (4, 6)),
        ("ijk,jk->ij", (3, 4), (4, 6)),
        ("ij,jk->iq", (3, 4), (4, 6)),
        ("...ijk,jk->ij", (3, 4), (4, 6)),
        ("ij->ij", (3, 4), (4, 6)),
    ],
)
def test_a_wrong_sum_of_products_is_refused(
    equation: str, a: Any, b: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(products, "LONGEST", 1)
    with pytest.raises(ValueError, match=r"subscript|operand|Ellipses|Size|Output"):
        einsum.einsum(np, equation, [np.ones(a), np.ones(b)])


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("longest", [1, 30])
def test_pieces_are_the_image(axis: int, longest: int, monkeypatch: pytest.MonkeyPatch) -> None:
    x, weights = floats(3, 4, 5), floats(2, 7)
    indices = DRAW.integers(0, x.shape[axis], weights.shape)
    wanted = interpolate.resample(np, x, axis, indices, weights)
    monkeypatch.setattr(interpolate, "LONGEST", longest)
    np.testing.assert_array_equal(interpolate.resample(np, x, axis, indices, weights), wanted)
