from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from running import Watch, floats, run, session
from scipy import special

from models import node
from tenonnx_cpu.attention import rotary
from tenonnx_cpu.jit.runtime import JitKernel
from tenonnx_cpu.matmul import dense
from tenonnx_cpu.recurrent import few_steps
from tenonnx_cpu.recurrent import operator as recurrent


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Any:
    return lambda kernel: Watch(kernel, monkeypatch)


def compare(one: Any, feeds: Any, kernel: JitKernel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare a session's outputs with those on numpy's kernels."""
    watched = Watch(kernel, monkeypatch)
    fast = one.run(None, feeds)
    assert watched.calls > 0
    monkeypatch.setattr(kernel, "run", None)
    for mine, numpys in zip(fast, one.run(None, feeds), strict=True):
        assert mine.shape == numpys.shape
        np.testing.assert_allclose(mine, numpys, rtol=2e-5, atol=2e-6)


def lstm_step(x: Any, h: Any, c: Any, w: Any, r: Any, b: Any) -> tuple[Any, Any]:
    n = h.shape[-1]
    gates = x @ w.T + h @ r.T + b[: 4 * n] + b[4 * n :]
    i, o, f, g = (gates[:, k * n : (k + 1) * n] for k in range(4))
    c = special.expit(f) * c + special.expit(i) * np.tanh(g)
    return special.expit(o) * np.tanh(c), c


@pytest.mark.parametrize(("batch", "n"), [(1, 5), (3, 32), (17, 40)])
@pytest.mark.parametrize("threads", [1, 4])
def test_lstm_against_float64(batch: int, n: int, threads: int, watch: Any) -> None:
    watched = watch(recurrent.RUN_LAYER)
    x, w, r = floats(30, batch, 6), floats(1, 4 * n, 6, scale=0.4), floats(1, 4 * n, n, scale=0.2)
    b = floats(1, 8 * n, seed=5)
    nodes = [node("LSTM", "x w r b", "y h c", hidden_size=n)]
    y, h, c = run(nodes, {"x": x}, "y h c", {"w": w, "r": r, "b": b}, threads=threads)
    assert watched.calls == 1
    wide = [array.astype(np.float64) for array in (w[0], r[0], b[0])]
    hidden, cell = np.zeros((batch, n)), np.zeros((batch, n))
    for t in range(30):
        hidden, cell = lstm_step(x[t].astype(np.float64), hidden, cell, *wide)
        np.testing.assert_allclose(y[t, 0], hidden, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(h[0], hidden, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(c[0], cell, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("operator", ["LSTM", "GRU"])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("layout", [0, 1])
@pytest.mark.parametrize("after", [0, 1])
@pytest.mark.parametrize(("n", "threads"), [(20, 1), (20, 4), (70, 1), (70, 2), (70, 4)])
def test_recurrent_layers_are_numpys(
    operator: str,
    direction: str,
    layout: int,
    after: int,
    n: int,
    threads: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ways, gates = 1 + (direction == "bidirectional"), 4 if operator == "LSTM" else 3
    feeds = {"x": floats(9, 5, 6), "h": floats(ways, 5, n)}
    weights = {
        "w": floats(ways, gates * n, 6),
        "r": floats(ways, gates * n, n, scale=1.3 / n**0.5),
        "b": floats(ways, 2 * gates * n),
    }
    more: dict[str, Any] = {"linear_before_reset": after} if operator == "GRU" else {}
    inputs, outputs = "x w r b _ h", "y yh"
    if operator == "LSTM":
        feeds["c"] = floats(ways, 5, n, seed=3)
        inputs, outputs = "x w r b _ h c", "y yh yc"
    if layout:
        feeds = {name: np.ascontiguousarray(a.swapaxes(0, 1)) for name, a in feeds.items()}
    layer = node(
        operator, inputs, outputs, direction=direction, layout=layout, hidden_size=n, **more
    )
    one = session([layer], feeds, outputs, weights, threads=threads)
    compare(one, feeds, recurrent.RUN_LAYER, monkeypatch)


@pytest.mark.parametrize("after", [0, 1])
@pytest.mark.parametrize("n", [20, 70])
def test_layers_without_biases(n: int, after: int, monkeypatch: pytest.MonkeyPatch) -> None:
    weights = {"w": floats(2, 3 * n, 6), "r": floats(2, 3 * n, n, scale=0.3)}
    both = {"direction": "bidirectional", "hidden_size": n, "linear_before_reset": after}
    feeds = {"x": floats(9, 5, 6)}
    one = session([node("GRU", "x w r", "y yh", **both)], feeds, "y yh", weights)
    compare(one, feeds, recurrent.RUN_LAYER, monkeypatch)


@pytest.mark.parametrize("operator", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize(("steps", "batch", "layout"), [(7, 4, 0), (7, 4, 1), (1, 2, 0), (2, 1, 1)])
def test_sequences_of_several_lengths(
    operator: str,
    direction: str,
    steps: int,
    batch: int,
    layout: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    n, ways = 19, 1 + (direction == "bidirectional")
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[operator]
    weights = {
        "w": floats(ways, gates * n, 18),
        "r": floats(ways, gates * n, n, scale=0.3),
        "b": floats(ways, 2 * gates * n),
        "lengths": np.array([steps, 1, 3, 5][:batch], np.int32).clip(max=steps),
    }
    feeds = {"x": floats(batch, steps, 18) if layout else floats(steps, batch, 18)}
    outputs = "y yh yc" if operator == "LSTM" else "y yh"
    layer = node(
        operator, "x w r b lengths", outputs, direction=direction, layout=layout, hidden_size=n
    )
    one = session([layer], feeds, outputs, weights)
    compare(one, feeds, recurrent.RUN_LAYER, monkeypatch)


@pytest.mark.parametrize("per_column", [False, True])
def test_weights_of_bytes(per_column: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    n, size, ways = 33, 20, 2
    columns = 4 * n if per_column else 1
    shape = (ways, columns) if per_column else (ways,)
    weights = {"b": floats(ways, 8 * n)}
    for name, depth in (("w", size), ("r", n)):
        weights[name] = rng.integers(0, 256, (ways, depth, 4 * n)).astype(np.uint8)
        weights[f"{name}s"] = rng.uniform(1e-3, 2e-3, shape).astype(np.float32)
        weights[f"{name}z"] = np.full(shape, 120, np.uint8)
    layer = node(
        "DynamicQuantizeLSTM", "x w r b _ _ _ _ ws wz rs rz", "y yh yc",
        domain="com.microsoft", direction="bidirectional", hidden_size=n,
    )  # fmt: skip
    feeds = {"x": floats(6, 3, size)}
    domains = {"": 21, "com.microsoft": 1}
    one = session([layer], feeds, "y yh yc", weights, domains=domains)
    compare(one, feeds, recurrent.RUN_LAYER, monkeypatch)


@pytest.mark.parametrize("kind", [np.int8, np.uint8])
@pytest.mark.parametrize("shifts", ["one", "alike", "by column"])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("given", ["", "b", "b h c"])
def test_few_steps_of_lstms_read_bytes(
    kind: Any, shifts: str, direction: str, given: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against numpy, which dequantizes all weights; and no more of them than steps allow."""
    monkeypatch.setattr(few_steps, "MIN_WEIGHT_BYTES", 0)
    taken = []
    original = few_steps.FewSteps.run
    monkeypatch.setattr(
        few_steps.FewSteps, "run", lambda *a: taken.append(original(*a)) or taken[-1]
    )
    size, n, ways = 24, 40, 1 + (direction == "bidirectional")
    rng, bounds = np.random.default_rng(5), np.iinfo(kind)
    shape = (ways,) if shifts == "one" else (ways, 4 * n)
    weights: dict[str, Any] = {}
    for name, depth in (("w", size), ("r", n)):
        weights[name] = rng.integers(bounds.min, bounds.max + 1, (ways, depth, 4 * n)).astype(kind)
        weights[f"{name}s"] = rng.uniform(1e-3, 2e-3, shape).astype(np.float32)
        weights[f"{name}z"] = np.full(shape, bounds.max // 2, kind)
        if shifts == "by column":
            weights[f"{name}z"] = rng.integers(bounds.min, bounds.max + 1, shape).astype(kind)
    every = {"b": floats(ways, 8 * n), "h": floats(ways, 1, n), "c": floats(ways, 1, n, seed=4)}
    names = [name if name in given else "_" for name in "bhc"]
    layer = node(
        "DynamicQuantizeLSTM", f"x w r {names[0]} _ {names[1]} {names[2]} _ ws wz rs rz", "y yh yc",
        domain="com.microsoft", direction=direction, hidden_size=n,
    )  # fmt: skip
    states = {name: every[name] for name in given.split()}
    domains = {"": 21, "com.microsoft": 1}
    one = session([layer], {"x": floats(1, 1, size), **states}, "y yh yc", weights, domains=domains)
    monkeypatch.setenv("TENONNX_JIT", "0")
    plain = session(
        [layer], {"x": floats(1, 1, size), **states}, "y yh yc", weights, domains=domains
    )
    for steps, items in ((1, 1), (4, 1), (1, 4), (3, 1), (5, 1), (0, 1)):
        own = {name: np.tile(array, (1, items, 1)) for name, array in states.items() if name != "b"}
        feeds = {"x": floats(steps, items, size, seed=steps), **states, **own}
        before = {name: array.copy() for name, array in feeds.items()}
        for _ in range(2):
            taken.clear()
            found, wanted = one.run(None, feeds), plain.run(None, feeds)
            for a, b in zip(found, wanted, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-5, atol=2e-6)
                assert a.shape == b.shape
            assert {each is not None for each in taken} == {0 < steps * items <= 4}
        for name, array in before.items():
            np.testing.assert_array_equal(array, feeds[name])


def test_a_state_given_is_not_written(watch: Any) -> None:
    watch(recurrent.RUN_LAYER)
    n = 8
    feeds = {"x": floats(3, 2, 4), "h": floats(1, 2, n)}
    before = feeds["h"].copy()
    weights = {"w": floats(1, 3 * n, 4), "r": floats(1, 3 * n, n)}
    run([node("GRU", "x w r _ _ h", "y yh", hidden_size=n)], feeds, "yh", weights)
    np.testing.assert_array_equal(feeds["h"], before)


@pytest.mark.parametrize("turned", [0, 1])
@pytest.mark.parametrize("rows", [1, 3, 6, 30, 150])
@pytest.mark.parametrize("sizes", [(20, 33, 7, 1), (300, 200, 64, 96)])
@pytest.mark.parametrize("threads", [1, 4])
def test_dense_layers_in_one_call(
    turned: int, rows: int, sizes: tuple[int, ...], threads: int, watch: Any
) -> None:
    watched = watch(dense.RUN_LAYERS)
    x, weights, nodes, last = floats(rows, sizes[0]), {}, [], "x"
    expected = x.astype(np.float64)
    functions = {"Relu": lambda z: np.maximum(z, 0), "Tanh": np.tanh, "Sigmoid": special.expit}
    for i, (name, function) in enumerate(functions.items()):
        w, b = (
            floats(sizes[i], sizes[i + 1], seed=i, scale=sizes[i] ** -0.5),
            floats(sizes[i + 1], seed=9),
        )
        weights |= {f"w{i}": np.ascontiguousarray(w.T) if turned else w, f"b{i}": b}
        nodes += [node("Gemm", f"{last} w{i} b{i}", f"g{i}", transB=turned)]
        nodes += [node(name, f"g{i}", f"a{i}")]
        last = f"a{i}"
        expected = function(expected @ w + b)
    y = run(nodes, {"x": x}, last, weights, threads=threads)
    assert watched.calls == 1
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=2e-6)


def test_a_layer_read_twice_ends_the_row() -> None:
    weights = {"w": floats(4, 4), "u": floats(4, 4, seed=1)}
    nodes = [node("Gemm", "x w", "a"), node("Gemm", "a u", "y"), node("Neg", "a", "z")]
    x = floats(2, 4)
    y, z = run(nodes, {"x": x}, "y z", weights)
    np.testing.assert_allclose(y, x @ weights["w"] @ weights["u"], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(z, -(x @ weights["w"]), rtol=1e-5, atol=1e-6)


ROTARY = [
    node("Slice", "x zero half axis", "low"),
    node("Slice", "x half end axis", "high"),
    node("Neg", "high", "minus"),
    node("Concat", "minus low", "turned", axis=-1),
    node("Mul", "x cos", "p"),
    node("Mul", "turned sin", "q"),
    node("Add", "p q", "y"),
]


HALF = [
    node("Shape", "x", "shape"),
    node("Gather", "shape axis", "size"),
    node("Div", "size two", "half"),
]


@pytest.mark.parametrize("computed", [False, True])
@pytest.mark.parametrize("shared", [1, 2])
def test_rotary_embedding_in_seven_nodes(shared: int, computed: bool, watch: Any) -> None:
    watched = watch(rotary.ROTATE)
    base = floats(2, 5, 3, 16)
    feeds = {"x": base.transpose(0, 2, 1, 3), "cos": floats(shared, 1, 5, 16, seed=1)}
    feeds["sin"] = floats(shared, 1, 5, 16, seed=2)
    numbers = {"zero": 0, "two" if computed else "half": 2 if computed else 8, "end": 16, "axis": 3}
    nodes = [*HALF, *ROTARY] if computed else ROTARY
    y = run(nodes, feeds, "y", {name: np.array([n]) for name, n in numbers.items()})
    x, cos, sin = (feeds[name].astype(np.float64) for name in ("x", "cos", "sin"))
    turned = np.concatenate([-x[..., 8:], x[..., :8]], -1)
    np.testing.assert_allclose(y, x * cos + turned * sin, rtol=1e-5, atol=1e-6)
    assert watched.calls == 1


def test_what_follows_a_convolution_whose_bias_varies() -> None:
    feeds = {"x": floats(1, 3, 9, 9), "b": floats(4, seed=2)}
    weights = {"w": floats(4, 3, 1, 1, seed=1), "f": np.array([3], np.float32)}
    nodes = [node("Conv", "x w b", "c"), node("Mul", "c f", "y")]
    one = session(nodes, feeds, "y", weights)
    for _ in range(6):
        (y,) = one.run(None, feeds)
        expected = 3 * np.einsum("bchw,oc->bohw", feeds["x"], weights["w"][:, :, 0, 0])
        expected += 3 * feeds["b"][:, None, None]
        np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)
        feeds["b"] += 1


def test_halves_that_are_none_are_left_alone(watch: Any) -> None:
    watched = watch(rotary.ROTATE)
    feeds = {name: floats(1, 2, 3, 16, seed=i) for i, name in enumerate(("x", "cos", "sin"))}
    numbers = {"zero": 0, "half": 6, "end": 16, "axis": 3}
    y = run(ROTARY, feeds, "y", {name: np.array([n]) for name, n in numbers.items()})
    x, cos, sin = feeds.values()
    turned = np.concatenate([-x[..., 6:], x[..., :6]], -1)
    np.testing.assert_allclose(y, x * cos + turned * sin, rtol=1e-5, atol=1e-6)
    assert watched.calls == 0


def test_large_concat_is_numpys() -> None:
    a, b = floats(1, 3, 500, 64), floats(1, 3, 1, 64)
    y = run([node("Concat", "a b", "y", axis=2)], {"a": a, "b": b}, "y")
    np.testing.assert_array_equal(y, np.concatenate([a, b], 2))
