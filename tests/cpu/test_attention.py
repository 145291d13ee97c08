from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from running import Watch, floats, run, session, softmax

import tenonnx
from models import model, node, value
from tenonnx_cpu.attention.attention import ATTEND, Rule, attend_launch
from tenonnx_cpu.capture.launch import done

FLOAT16, BOOL = 10, 9
Case = tuple[int, int, int, int, int, int, int]


def attend(*given: Any) -> Any:
    return done(attend_launch(*given))[0]


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Watch:
    return Watch(ATTEND, monkeypatch)


def expected(
    q: Any, k: Any, v: Any, mask: Any, scale: float, before: int = -1, softcap: float = 0
) -> Any:
    q, k, v = (np.asarray(array, np.float64) for array in (q, k, v))
    shared = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, shared, 1), np.repeat(v, shared, 1)
    scores = q @ k.swapaxes(2, 3) * scale
    if softcap:
        scores = softcap * np.tanh(scores / softcap)
    if mask is not None:
        scores = scores + mask
    if before >= 0:
        later = np.arange(k.shape[2]) > np.arange(q.shape[2])[:, None] + before
        scores = np.where(later, -np.inf, scores)
    return softmax(scores) @ v


CASES: list[Case] = [
    (1, 2, 2, 1, 1, 1, 1),
    (1, 12, 12, 1, 513, 64, 64),
    (2, 4, 2, 3, 33, 40, 24),
    (1, 2, 1, 5, 7, 3, 5),
    (2, 3, 3, 128, 128, 64, 64),
    (1, 4, 2, 100, 700, 64, 33),
    (1, 1, 1, 300, 300, 17, 130),
    (2, 2, 1, 60, 300, 36, 36),
    (1, 2, 2, 30, 50, 20, 48),
]
"""Batch, heads, groups, queries, keys, size, value size."""


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("mask", ["none", "keys", "all", "causal"])
@pytest.mark.parametrize("threads", [1, 4])
def test_attention(case: Case, mask: str, threads: int, kernel: Watch) -> None:
    batch, heads, groups, queries, keys, size, value_size = case
    q = floats(batch, queries, heads, size).transpose(0, 2, 1, 3)
    k, v = floats(batch, groups, keys, size, seed=1), floats(batch, groups, keys, value_size)
    masks = {
        "keys": floats(batch, 1, 1, keys, seed=3),
        "all": floats(batch, heads, queries, keys, seed=3),
    }
    before = max(0, keys - queries) if mask == "causal" else -1
    scale = 1 / math.sqrt(size)
    rule = Rule(scale, right=0 if before >= 0 else -1)
    y = attend((q, k, v), masks.get(mask), rule, threads, max(0, before))
    assert kernel.calls == 1
    reference = expected(q, k, v, masks.get(mask), scale, before)
    np.testing.assert_allclose(y, reference, rtol=1e-5, atol=3e-6)


@pytest.mark.parametrize("case", CASES)
def test_scores_are_capped_before_they_are_masked(case: Case, kernel: Watch) -> None:
    batch, heads, groups, queries, keys, size, value_size = case
    q, k = floats(batch, heads, queries, size), floats(batch, groups, keys, size, seed=1)
    v = floats(batch, groups, keys, value_size)
    mask = floats(batch, 1, queries, keys, seed=3)
    y = attend((q, k, v), mask, Rule(1.0, softcap=1.5), 2)
    assert kernel.calls == 1
    np.testing.assert_allclose(y, expected(q, k, v, mask, 1.0, softcap=1.5), rtol=1e-5, atol=3e-6)


@pytest.mark.parametrize("queries", [1, 30])
def test_hidden_keys_and_special_scores(queries: int) -> None:
    keys = 600
    q, k, v = floats(1, 2, queries, 8), floats(1, 2, keys, 8, seed=1), floats(1, 2, keys, 8)
    mask = np.zeros((1, 1, queries, keys), np.float32)
    mask[..., :300] = -np.inf
    y = attend((q, k, v), mask, Rule(1.0), 1)
    np.testing.assert_allclose(y, expected(q, k, v, mask, 1.0), rtol=1e-5, atol=3e-6)
    mask[...] = -np.inf
    assert np.isnan(attend((q, k, v), mask, Rule(1.0), 1)).all()
    assert (attend((q, k, v), mask, Rule(1.0, nothing=0.0), 1) == 0).all()
    mask[...] = 0
    mask[..., 5] = np.nan
    assert np.isnan(attend((q, k, v), mask, Rule(1.0), 1)).all()


def test_great_scores_do_not_overflow() -> None:
    q, k = floats(1, 1, 40, 16, scale=100), floats(1, 1, 500, 16, seed=1, scale=100)
    v = floats(1, 1, 500, 16)
    np.testing.assert_allclose(
        attend((q, k, v), None, Rule(1.0), 1), expected(q, k, v, None, 1.0), rtol=1e-2
    )


def exported(scale: str, mask: bool) -> list[Any]:
    nodes = [node("Transpose", "k", "kt", perm=[0, 1, 3, 2]), node("MatMul", "q kt", "s0")]
    last = "s0"
    if scale:
        nodes.append(node(scale, f"{last} factor", "s1"))
        last = "s1"
    if mask:
        nodes.append(node("Add", f"{last} mask", "s2"))
        last = "s2"
    return [*nodes, node("Softmax", last, "w", axis=-1), node("MatMul", "w v", "y")]


@pytest.mark.parametrize("scale", ["", "Mul", "Div"])
@pytest.mark.parametrize("mask", [False, True])
def test_attention_in_five_nodes(scale: str, mask: bool, kernel: Watch) -> None:
    feeds = {"q": floats(2, 3, 20, 16), "k": floats(2, 3, 50, 16, seed=1), "v": floats(2, 3, 50, 8)}
    if mask:
        feeds["mask"] = floats(2, 1, 1, 50, seed=4)
    nodes = exported(scale, mask)
    y = run(nodes, feeds, "y", {"factor": np.array(4, np.float32)})
    assert kernel.calls == 1
    factor = {"": 1.0, "Mul": 4.0, "Div": 0.25}[scale]
    reference = expected(feeds["q"], feeds["k"], feeds["v"], feeds.get("mask"), factor)
    np.testing.assert_allclose(y, reference, rtol=2e-5, atol=5e-6)


@pytest.mark.parametrize("axis", [-1, 2])
@pytest.mark.parametrize("mask", [(), (20, 50), (1, 20, 50), (3, 1, 50)])
def test_heads_without_a_batch(axis: int, mask: tuple[int, ...], kernel: Watch) -> None:
    feeds = {"q": floats(3, 20, 16), "k": floats(3, 50, 16, seed=1), "v": floats(3, 50, 8)}
    if mask:
        feeds["mask"] = floats(*mask, seed=4)
    nodes = [
        node("Transpose", "k", "kt", perm=[0, 2, 1]),
        node("MatMul", "q kt", "s"),
        *([node("Add", "s mask", "m")] if mask else []),
        node("Softmax", "m" if mask else "s", "w", axis=axis),
        node("MatMul", "w v", "y"),
    ]
    y = run(nodes, feeds, "y")
    q, k, v = (feeds[name][:, None] for name in "qkv")
    added = feeds["mask"].reshape(-1, 1, *mask[-2:]) if mask else None
    np.testing.assert_allclose(y, expected(q, k, v, added, 1.0)[:, 0], rtol=2e-5, atol=5e-6)
    assert kernel.calls == 1


def test_a_softmax_over_queries_is_numpys(kernel: Watch) -> None:
    feeds = {"q": floats(3, 20, 16), "k": floats(3, 16, 50, seed=1), "v": floats(3, 50, 8)}
    nodes = [
        node("MatMul", "q k", "s"),
        node("Softmax", "s", "w", axis=1),
        node("MatMul", "w v", "y"),
    ]
    y = run(nodes, feeds, "y")
    scores = feeds["q"].astype(np.float64) @ feeds["k"]
    weights = softmax(scores.swapaxes(1, 2)).swapaxes(1, 2)
    np.testing.assert_allclose(y, weights @ feeds["v"], rtol=2e-5, atol=5e-6)
    assert kernel.calls == 0


def test_weights_that_are_an_output_are_made(kernel: Watch) -> None:
    feeds = {"q": floats(1, 1, 4, 8), "k": floats(1, 1, 6, 8, seed=1), "v": floats(1, 1, 6, 8)}
    _, w = run(exported("", False), feeds, "y w")
    np.testing.assert_allclose(w.sum(-1), np.ones((1, 1, 4)), rtol=1e-5)
    assert kernel.calls == 0


@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("past", [0, 11])
def test_the_operator(
    causal: int, packed: bool, past: int, kernel: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    heads, groups, queries, size = 6, 2, 9, 16
    if packed:
        shapes = {"q": (2, queries, heads * size), "k": (2, 9, groups * size)}
    else:
        shapes = {"q": (2, heads, queries, size), "k": (2, groups, 9, size)}
    feeds = {name: floats(*shape, seed=i) for i, (name, shape) in enumerate(shapes.items())}
    feeds["v"] = floats(*shapes["k"], seed=7)
    inputs = "q k v"
    if past:
        feeds |= {name: floats(2, groups, past, size, seed=5) for name in ("pk", "pv")}
        inputs = "q k v _ pk pv"
    attributes = {"q_num_heads": heads, "kv_num_heads": groups} if packed else {}
    nodes = [node("Attention", inputs, "y keys values", is_causal=causal, **attributes)]
    one = session(nodes, feeds, "y keys values", opset=23)
    fast = one.run(None, feeds)
    assert kernel.calls == 1
    monkeypatch.setattr(ATTEND, "run", None)
    for mine, numpys in zip(fast, one.run(None, feeds), strict=True):
        np.testing.assert_allclose(mine, numpys, rtol=2e-5, atol=5e-6)


def test_joined_keys_and_values_are_those_of_the_run() -> None:
    feeds = {"q": floats(1, 2, 4, 8), "k": floats(1, 2, 4, 8, seed=1), "v": floats(1, 2, 4, 8)}
    feeds |= {"pk": floats(1, 2, 3, 8, seed=2), "pv": floats(1, 2, 3, 8, seed=3)}
    one = session(
        [node("Attention", "q k v _ pk pv", "y keys values")], feeds, "y keys values", opset=23
    )
    first = one.run(None, feeds)
    made = [one.run(None, feeds) for _ in range(5)]  # a step is captured in its third run
    for each in made:
        for again, before in zip(each, first, strict=True):
            np.testing.assert_array_equal(again, before)


@pytest.mark.parametrize("kind", [np.float32, bool])
def test_the_operators_masks(kind: Any, kernel: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    feeds = {"q": floats(1, 2, 6, 8), "k": floats(1, 2, 9, 8, seed=1), "v": floats(1, 2, 9, 8)}
    mask = floats(6, 9, seed=3)
    feeds["m"] = mask if kind is np.float32 else mask > 0
    kinds = {} if kind is np.float32 else {"m": 9}
    nodes = [node("Attention", "q k v m", "y")]
    one = session(nodes, feeds, "y", opset=23, kinds=kinds)
    fast = one.run(None, feeds)[0]
    assert kernel.calls == 1
    monkeypatch.setattr(ATTEND, "run", None)
    np.testing.assert_allclose(fast, one.run(None, feeds)[0], rtol=2e-5, atol=5e-6)


WINDOWS = [
    {"softcap": 1.5},
    {"is_causal": 1, "softcap": 0.5},
    {"left_window_size": 2},
    {"left_window_size": 2, "right_window_size": 3},
    {"right_window_size": 0},
    {"is_causal": 1, "left_window_size": 4},
    {"left_window_size": 0, "right_window_size": 0},
]


@pytest.mark.parametrize("attributes", WINDOWS, ids=str)
@pytest.mark.parametrize("queries", [1, 9])
@pytest.mark.parametrize("past", [0, 11])
def test_the_operators_windows(
    attributes: dict[str, Any],
    queries: int,
    past: int,
    kernel: Watch,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    feeds = {"q": floats(2, 6, queries, 16), "k": floats(2, 2, 9, 16, seed=1)}
    feeds |= {"v": floats(2, 2, 9, 8, seed=2), "m": floats(queries, 9 + past, seed=3)}
    if past:
        feeds |= {"pk": floats(2, 2, past, 16, seed=5), "pv": floats(2, 2, past, 8, seed=6)}
    inputs, outputs = f"q k v m {'pk pv' if past else ''}", "y keys values"
    one = session([node("Attention", inputs, outputs, **attributes)], feeds, outputs, opset=25)
    fast = one.run(None, feeds)
    assert kernel.calls == 1
    monkeypatch.setattr(ATTEND, "run", None)
    for mine, numpys in zip(fast, one.run(None, feeds), strict=True):
        np.testing.assert_allclose(mine, numpys, rtol=2e-5, atol=5e-6)


@pytest.mark.parametrize("lengths", [(12, 12), (20, 4), (9, 17)])
@pytest.mark.parametrize("queries", [1, 4, 9])
@pytest.mark.parametrize("mask", [(), (20,), (2, 1, 1, 20)])
@pytest.mark.parametrize("attributes", [{}, {"is_causal": 1}, {"left_window_size": 3}], ids=str)
def test_the_operators_unfilled_caches(
    lengths: tuple[int, int],
    queries: int,
    mask: tuple[int, ...],
    attributes: dict[str, Any],
    kernel: Watch,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    feeds = {"q": floats(2, 6, queries, 16), "k": floats(2, 2, 20, 16, seed=1)}
    feeds |= {"v": floats(2, 2, 20, 8, seed=2), "n": np.array(lengths)}
    if mask:
        feeds["m"] = floats(*mask, seed=3)
    inputs = f"q k v {'m' if mask else '_'} _ _ n"
    nodes = [node("Attention", inputs, "y", **attributes)]
    one = session(nodes, feeds, "y", opset=25, kinds={"n": 7})
    fast = one.run(None, feeds)[0]
    causal = attributes and "left_window_size" not in attributes
    numpys = causal and min(lengths) < queries
    assert kernel.calls or numpys
    monkeypatch.setattr(ATTEND, "run", None)
    np.testing.assert_allclose(fast, one.run(None, feeds)[0], rtol=2e-5, atol=5e-6)


@pytest.mark.parametrize("low", [np.finfo(np.float16).min, -1e4])
@pytest.mark.parametrize("hidden", [False, True])
def test_queries_without_keys_in_16_bits(kernel: Watch, hidden: bool, low: float) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    nodes = [
        node("Transpose", "k", "t", perm=[0, 1, 3, 2]),
        node("MatMul", "q t", "p"),
        node("Not", "c", "h"),
        node("Where", "h low p" if hidden else "c p low", "n"),
        node("Softmax", "n", "a", axis=-1),
        node("MatMul", "a v", "y"),
    ]
    feeds = {name: floats(1, 2, 5, 8, seed=n).astype(np.float16) for n, name in enumerate("qkv")}
    feeds["c"] = np.tri(5, k=-1, dtype=bool)
    inputs = [value(name, FLOAT16, list(feeds[name].shape)) for name in "qkv"]
    content = model(
        nodes if hidden else [each for each in nodes if each.op_type != "Not"],
        [*inputs, value("c", BOOL, [5, 5])],
        [value("y", FLOAT16, None)],
        {"low": np.array(low, np.float16)},
        opset=21,
    ).SerializeToString()
    y, wanted = (
        runtime.InferenceSession(content, providers=["CPUExecutionProvider"]).run(None, feeds)[0]
        for runtime in (tenonnx, onnxruntime)
    )
    assert kernel.calls == 1
    np.testing.assert_allclose(np.float32(y), np.float32(wanted), rtol=4e-3, atol=4e-3)


FILLS = [0.0, 10.0, -80.0, -1e4, -1e5, -1e9, -1e12, -1e30, float(np.finfo(np.float32).min), -np.inf]
HIDING = {
    "all": lambda keys: keys >= 0,
    "most": lambda keys: keys != 1,
    "some": lambda keys: keys > 4,
}


@pytest.mark.parametrize("fill", FILLS)
@pytest.mark.parametrize("hiding", HIDING)
@pytest.mark.parametrize("queries", [1, 3, 40])
@pytest.mark.parametrize("keys", [12, 300])
@pytest.mark.parametrize("compiled", [True, False])
def test_hidden_keys_have_the_score_that_the_nodes_give_them(
    fill: float,
    hiding: str,
    queries: int,
    keys: int,
    compiled: bool,
    kernel: Watch,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Score are of thousands, and one of a hidden key is not a number."""
    q, k = floats(1, 2, queries, 8, scale=40), floats(1, 2, keys, 8, seed=1, scale=40)
    v, hidden = floats(1, 2, keys, 8, seed=2), HIDING[hiding](np.arange(keys))
    k[0, 0, -1, 3] = np.nan
    nodes = [
        node("Transpose", "k", "t", perm=[0, 1, 3, 2]),
        node("MatMul", "q t", "p"),
        node("Where", "c fill p", "n"),
        node("Softmax", "n", "a", axis=-1),
        node("MatMul", "a v", "y"),
    ]
    feeds = {"q": q, "k": k, "v": v, "c": hidden}
    one = session(nodes, feeds, "y", {"fill": np.float32(fill)}, kinds={"c": BOOL})
    if not compiled:
        monkeypatch.setattr(ATTEND, "run", None)
    y = one.run(None, feeds)[0]
    assert kernel.calls == int(compiled)
    with np.errstate(all="ignore"):
        scores = q.astype(np.float64) @ k.astype(np.float64).swapaxes(2, 3)
    weights = softmax(np.where(hidden, np.float64(np.float32(fill)), scores))
    np.testing.assert_allclose(y, weights @ v.astype(np.float64), rtol=2e-3, atol=2e-3)
