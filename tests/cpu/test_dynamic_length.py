"""Spans whose inputs get longer from run to run: one capture for many lengths."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import Any

import numpy as np
import pytest
from running import floats, require_kernels, session

import tenonnx
from models import node
from tenonnx_cpu.capture import capturable, growth, span
from tenonnx_cpu.capture.captured_run import CapturedRun

require_kernels()

WIDTH = 16
WEIGHTS = {
    "w": floats(WIDTH, WIDTH, seed=1, scale=0.2),
    "split": np.array([0, 0, 2, 8]),
    "join": np.array([0, 0, WIDTH]),
    "two": np.array([2]),
    "half": np.array([2]),
    "none": np.array([0]),
    "axis": np.array([2]),
}
LAYER = [
    node("MatMul", "x w", "product"),
    node("Reshape", "product split", "heads"),
    node("Transpose", "heads", "q", perm=[0, 2, 1, 3]),
]
ENDING = [
    node("Transpose", "mixed", "back", perm=[0, 2, 1, 3]),
    node("Reshape", "back join", "joined"),
    node("MatMul", "joined w", "out"),
    node("Softmax", "out", "y"),
]
JOINED = [
    *LAYER,
    node("Concat", "pk q", "keys", axis=2),
    node("Concat", "pv q", "values", axis=2),
    node("Attention", "q keys values", "mixed"),
    *ENDING,
]
OPERATOR = [
    *LAYER,
    node("Neg", "q", "k"),
    node("Abs", "q", "v"),
    node("Attention", "q k v m pk pv", "mixed keys values"),
    *ENDING,
]
UNPROMISED = [*JOINED, node("Softmax", "keys", "soft"), node("Exp", "values", "more")]
UNEVEN = [
    *JOINED,
    # Every other four lengths, the first key is left out.
    node("Shape", "keys", "count", start=2, end=3),
    node("Div", "count four", "fours"),
    node("Mod", "fours two", "odd"),
    node("Slice", "keys odd count axis", "some"),
]
"""Of which the arithmetic is on one line at the least and the greatest length, but not between."""


@pytest.fixture(autouse=True)
def _compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENONNX_JIT", "1")


def fed(past: int, batch: int = 1, queries: int = 1, *, mask: bool = False) -> dict[str, Any]:
    feeds = {"x": floats(batch, queries, WIDTH, seed=past)}
    feeds |= {name: floats(batch, 2, past, 8, seed=past) for name in ("pk", "pv")}
    if mask:
        feeds["m"] = floats(batch, 1, queries, past + queries) > 0
    return feeds


def opened(nodes: Any, outputs: str, threads: int = 1, **given: Any) -> tenonnx.InferenceSession:
    weights = WEIGHTS | {"four": np.array([4])}
    read = {name for each in nodes for name in each.input}
    used = {name: array for name, array in weights.items() if name in read}
    kinds = {"m": 9} if given.get("mask") else {}
    return session(nodes, fed(3, **given), outputs, used, threads=threads, opset=23, kinds=kinds)


def both(
    nodes: Any, outputs: str, monkeypatch: pytest.MonkeyPatch, threads: int = 1, **given: Any
) -> tuple[tenonnx.InferenceSession, tenonnx.InferenceSession]:
    one = opened(nodes, outputs, threads, **given)
    with monkeypatch.context() as patch:
        patch.setattr(capturable, "COUNTED", False)
        return one, opened(nodes, outputs, threads, **given)


def same(one: Any, plain: Any, feeds: dict[str, Any]) -> None:
    for found, wanted in zip(one.run(None, feeds), plain.run(None, feeds), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def tracer(one: tenonnx.InferenceSession) -> span.Tracer:
    found = [getattr(step.call, "__self__", None) for step in one._plan.program.block.items]
    (only,) = (cell[1] for cell in found if isinstance(cell, capturable.Cell))
    assert isinstance(only, span.Tracer)
    return only


@pytest.mark.parametrize("nodes", [JOINED, OPERATOR], ids=["joined", "operator"])
@pytest.mark.parametrize("threads", [1, 2])
def test_a_cache_that_grows(nodes: Any, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Past the lengths of one run, from its beginning again, and with another batch."""
    mask = nodes is OPERATOR
    one, plain = both(nodes, "y keys values", monkeypatch, threads, mask=mask)
    before = growth.LENGTHS - 9
    same(one, plain, fed(before, queries=4, mask=mask))
    for past in [*range(before + 4, growth.LENGTHS + 9), *range(1, 9)]:
        same(one, plain, fed(past, mask=mask))
    assert len(tracer(one)._dynamic) == 2
    for past in range(3, 9):
        same(one, plain, fed(past, batch=2, mask=mask))
        same(one, plain, fed(past, queries=3, mask=mask))
    assert len(tracer(one).untraced_steps) == len(tracer(one).single_steps), "none is parted"


def test_a_text_of_another_length_asks_its_readers_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A decoder's cache grows, and the text that it reads is another for the next answer."""
    nodes = [
        *JOINED,
        node("MatMul", "text w", "read"),
        node("Reshape", "read split", "parts"),
        node("Transpose", "parts", "source", perm=[0, 2, 1, 3]),
        node("Attention", "q source source", "z"),
        node("Exp", "z", "last"),
    ]
    weights = {name: WEIGHTS[name] for name in ("w", "split", "join")}

    def feeds(past: int, text: int) -> dict[str, Any]:
        return fed(past) | {"text": floats(1, text, WIDTH, seed=text)}

    one = session(nodes, feeds(3, 5), "y keys values last", weights, opset=23)
    with monkeypatch.context() as patch:
        patch.setattr(capturable, "COUNTED", False)
        plain = session(nodes, feeds(3, 5), "y keys values last", weights, opset=23)
    asked: list[int] = []
    add = CapturedRun.add
    monkeypatch.setattr(CapturedRun, "add", lambda *given: asked.append(1) or add(*given))
    counts = []
    for text in (5, 9, 7, 9, 11):
        asked.clear()
        for past in range(3, 7):
            same(one, plain, feeds(past, text))
        counts.append(len(asked))
    assert len(tracer(one)._dynamic) == 4
    assert counts[3] == 0, "the run of that text is still there"
    assert 0 < max(counts[1], counts[2], counts[4]) < counts[0] / 2, counts


def test_lengths_that_a_run_serves_ask_no_step(monkeypatch: pytest.MonkeyPatch) -> None:
    one = opened(JOINED, "y keys values")
    for past in range(3, 7):
        one.run(None, fed(past))
    kept = tracer(one)

    def refused(*_: Any) -> None:
        raise AssertionError

    monkeypatch.setattr(kept, "_call", refused)
    for past in (7, 200, 8):
        assert one.run(None, fed(past))[1].shape == (1, 2, past + 1, 8)


def test_steps_of_the_same_arrays_are_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    one = opened(JOINED, "y keys values")
    for past in (3, 4):
        one.run(None, fed(past))
    asked, add = list[Any](), CapturedRun.add

    def added(run: CapturedRun, made: Any, *more: Any) -> bool:
        asked.append(made)
        return add(run, made, *more)

    monkeypatch.setattr(CapturedRun, "add", added)
    one.run(None, fed(5))
    assert tracer(one)._dynamic
    # At two more lengths, only what reads the cache.
    assert len(asked) == len(tracer(one).single_steps) + 2 * len(("Concat", "Concat", "Attention"))


@pytest.mark.parametrize(
    ("nodes", "outputs"), [(UNPROMISED, "y soft more"), (UNEVEN, "y some")], ids=["kernel", "shape"]
)
def test_what_is_on_no_line_is_is_split(
    nodes: Any, outputs: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, plain = both(nodes, outputs, monkeypatch)
    for past in range(3, 30):
        same(one, plain, fed(past))
    kept = tracer(one)
    assert not kept._dynamic
    inside = [getattr(step.call, "__self__", None) for step in kept.untraced_steps]
    assert any(len(cell[1]._dynamic) for cell in inside if type(cell[1]) is span.Tracer)


def test_texts_have_runs_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cache grow beside a text, and begin again beside others; the span stays whole."""
    nodes = [*JOINED, node("MatMul", "text w", "seen"), node("Softmax", "seen", "z")]

    def read(past: int, tokens: int) -> dict[str, Any]:
        return fed(past) | {"text": floats(1, tokens, WIDTH, seed=tokens)}

    used = {name: WEIGHTS[name] for name in ("w", "split", "join")}
    one = session(nodes, read(3, 5), "y keys z", used, opset=23)
    with monkeypatch.context() as patch:
        patch.setattr(capturable, "COUNTED", False)
        plain = session(nodes, read(3, 5), "y keys z", used, opset=23)
    for tokens, first in ((5, 3), (9, 5), (7, 3)):
        for past in range(first, 12):
            same(one, plain, read(past, tokens))
    kept = tracer(one)
    assert not kept._is_split
    assert len(kept._dynamic) == 3


def test_threads_with_lengths_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    one, plain = both(JOINED, "y keys values", monkeypatch)
    wanted = {past: plain.run(None, fed(past)) for past in range(3, 60)}
    wrong = []

    def work(first: int) -> None:
        for past in range(first, 60):
            found = one.run(None, fed(past))
            if not all(map(np.allclose, found, wanted[past])):
                wrong.append(past)

    threads = [threading.Thread(target=work, args=(first,)) for first in (3, 9, 20, 31)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_nothing_of_a_run_is_kept() -> None:
    one = opened(JOINED, "y keys values")
    for past in range(3, 9):
        feeds = fed(past)
        seen = [weakref.ref(x) for x in (*one.run(None, feeds), *feeds.values())]
    assert tracer(one)._dynamic
    del feeds
    assert not any(ref() is not None for ref in seen)
    gone = weakref.ref(tracer(one))
    gc.disable()
    try:
        del one
        assert gone() is None
    finally:
        gc.enable()
