from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from running import Watch, floats, run, session, wide
from scipy import special

import tenonnx
from models import node
from tenonnx_cpu import subgraph
from tenonnx_cpu.elementwise.program import (
    RUN_PROGRAM,
)
from tenonnx_cpu.elementwise.typed import APPLY

SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e30, -1e30, 1e-30, 90, -90], np.float32)


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Watch:
    return Watch(RUN_PROGRAM, monkeypatch)


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> Watch:
    """Counts the calls of what computes programs of one instruction."""
    return Watch(APPLY, monkeypatch)


def sigmoid(x: Any) -> Any:
    return special.expit(x)


def normal(x: Any) -> Any:
    return x * special.ndtr(x)


ALPHA_GAMMA = 1.67326319217681884765625, 1.05070102214813232421875

UNARY = {
    "Relu": (lambda x: np.maximum(x, 0), 0),
    "Neg": (np.negative, 0),
    "Abs": (np.abs, 0),
    "Sqrt": (np.sqrt, 1),
    "Reciprocal": (np.reciprocal, 1),
    "Floor": (np.floor, 0),
    "Ceil": (np.ceil, 0),
    "Exp": (np.exp, 2),
    "Erf": (special.erf, 7),
    "Sigmoid": (sigmoid, 4),
    "Tanh": (np.tanh, 6),
    "Softsign": (lambda x: x / (1 + np.abs(x)), 2),
    "LeakyRelu": (lambda x: np.where(x < 0, np.float32(0.01) * np.float64(x), x), 1),
    "ThresholdedRelu": (lambda x: np.where(x > 1, x, 0), 0),
    "Acos": (np.arccos, 2),
    "Acosh": (np.arccosh, 3),
    "Asin": (np.arcsin, 3),
    "Asinh": (np.arcsinh, 2),
    "Atan": (np.arctan, 2),
    "Atanh": (np.arctanh, 2),
    "Celu": (lambda x: np.where(x < 0, np.expm1(x), x), 2),
    "Cos": (np.cos, 2),
    "Cosh": (np.cosh, 2),
    "Elu": (lambda x: np.where(x < 0, np.expm1(x), x), 2),
    "Log": (np.log, 1),
    "Mish": (lambda x: x * np.tanh(np.log1p(np.exp(x))), 4),
    "Selu": (lambda x: ALPHA_GAMMA[1] * np.where(x < 0, ALPHA_GAMMA[0] * np.expm1(x), x), 3),
    "Shrink": (lambda x: np.where(abs(x) > 0.5, x, 0), 0),
    "Sin": (np.sin, 2),
    "Sinh": (np.sinh, 2),
    "Softplus": (lambda x: np.logaddexp(x, 0), 2),
    "Tan": (np.tan, 4),
}
FUNCTIONS = [*UNARY][[*UNARY].index("Acos") :]


@pytest.mark.parametrize("name", UNARY)
def test_one_operator_then_another(name: str, kernel: Watch) -> None:
    function, ulps = UNARY[name]
    x = floats(37, 53, scale=3)
    nodes = [node(name, "x", "y"), node("Neg", "y", "z")]
    z = run(nodes, {"x": x}, "z")
    assert kernel.calls == 1
    expected = -wide(function, x)
    spacing = np.spacing(np.abs(expected).astype(np.float32)).clip(1e-12)
    assert np.nanmax(np.abs(z - expected) / spacing) <= ulps + 0.51
    np.testing.assert_array_equal(np.isnan(z), np.isnan(expected))


@pytest.mark.parametrize("name", UNARY)
def test_special_values_are_numpys(
    name: str, kernel: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = [node(name, "x", "y"), node("Abs", "y", "z")]
    one = session(nodes, {"x": SPECIAL}, "z")
    fused = one.run(None, {"x": SPECIAL})[0]
    assert kernel.calls == 1
    monkeypatch.setattr(RUN_PROGRAM, "run", None)
    plain = one.run(None, {"x": SPECIAL})[0]
    np.testing.assert_allclose(fused, plain, rtol=1e-6, atol=1e-38)


EDGES = [0.0, np.inf, 1e-45, 1e-40, 1.2e-38, 0.25, 0.5, 1 - 2**-24, 1, 1 + 2**-23, 88.7, 89.4, 2e19]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_all_magnitudes(name: str, kernel: Watch) -> None:
    """Denormal results of Mish have the digits of e**x, to which numpy rounds as well."""
    function, ulps = UNARY[name]
    bits = np.random.default_rng(5).integers(0, 2**32, 50_000, np.uint32)
    drawn = bits.view(np.float32)[~np.isnan(bits.view(np.float32))]
    edges = np.array(EDGES, np.float32)
    x = np.concatenate([drawn, edges, -edges, [np.float32(np.nan)]])
    with np.errstate(all="ignore"):
        expected = wide(function, x)
        if name == "Mish":
            x, expected = x[x > -87], expected[x > -87]
        rounded = expected.astype(np.float32)
    y = run([node(name, "x", "y")], {"x": x}, "y")
    assert kernel.calls == 1
    finite = np.isfinite(rounded)
    np.testing.assert_array_equal(y[~finite], rounded[~finite])
    np.testing.assert_array_equal(np.signbit(y[finite]), np.signbit(rounded[finite]))
    apart = np.abs(y[finite] - expected[finite]) / np.spacing(np.abs(rounded[finite]))
    assert apart.max() <= ulps + 0.51


def test_parameters_of_exponential_units(kernel: Watch) -> None:
    x = floats(40, 50, scale=3)
    wide_x = x.astype(np.float64)
    below = np.minimum(wide_x, 0)
    above = np.maximum(wide_x, 0)
    for name, attributes, expected in (
        ("Elu", {"alpha": 0.75}, 0.75 * np.expm1(below) + above),
        ("Celu", {"alpha": 0.75}, 0.75 * np.expm1(below / 0.75) + above),
        ("Celu", {"alpha": -0.75}, np.minimum(-0.75 * np.expm1(wide_x / -0.75), 0) + above),
        ("Selu", {"alpha": 0.75, "gamma": 1.5}, 1.5 * (0.75 * np.expm1(below) + above)),
        (
            "Shrink",
            {"lambd": 0.75, "bias": 0.5},
            np.sign(x) * (abs(wide_x) - 0.5) * (abs(x) > 0.75),
        ),
    ):
        y = run([node(name, "x", "y", **attributes)], {"x": x}, "y")
        np.testing.assert_allclose(y, expected, rtol=5e-7, atol=1e-30)
    assert kernel.calls == 4  # of a negative alpha it has none


@pytest.mark.parametrize("name", ["Max", "Min", "Add", "Sub", "Mul", "Div"])
def test_pairs_of_special_values_are_numpys(name: str, kernel: Watch) -> None:
    x, y = (array.reshape(-1) for array in np.meshgrid(SPECIAL, SPECIAL))
    z = run([node(name, "x y", "s"), node("Neg", "s", "z")], {"x": x, "y": y}, "z")
    ufuncs = {"Max": "maximum", "Min": "minimum", "Sub": "subtract", "Mul": "multiply"}
    function = getattr(np, {**ufuncs, "Add": "add", "Div": "divide"}[name])
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(z, -function(x, y))
    assert kernel.calls == 1


def gelu_nodes() -> list[Any]:
    return [
        node("Div", "x root", "scaled"),
        node("Erf", "scaled", "e"),
        node("Add", "e one", "shifted"),
        node("Mul", "x shifted", "twice"),
        node("Mul", "twice half", "y"),
    ]


NUMBERS = {
    "root": np.array(math.sqrt(2), np.float32),
    "one": np.array(1, np.float32),
    "half": np.array([0.5], np.float32),
}


@pytest.mark.parametrize("threads", [1, 4])
def test_gelu_in_five_nodes_is_one_call(threads: int, kernel: Watch) -> None:
    x = floats(64, 3000, scale=3)
    y = run(gelu_nodes(), {"x": x}, "y", NUMBERS, threads=threads)
    assert kernel.calls == 1
    assert np.abs(y - wide(normal, x)).max() <= 1e-6 * np.abs(x).max()


def test_threads_change_nothing() -> None:
    x = floats(300, 1111)
    one, four = (run(gelu_nodes(), {"x": x}, "y", NUMBERS, threads=n) for n in (1, 4))
    np.testing.assert_array_equal(one, four)


def test_gelu_silu_and_hard_swish_alone(kernel: Watch) -> None:
    x = floats(5, 700, scale=4)
    for name, function in (
        ("Gelu", normal),
        ("HardSigmoid", lambda x: np.clip(0.2 * x + 0.5, 0, 1)),
        ("HardSwish", lambda x: x * np.clip(x / 6 + 0.5, 0, 1)),
    ):
        y = run([node(name, "x", "y")], {"x": x}, "y")
        np.testing.assert_allclose(y, wide(function, x), rtol=2e-6, atol=3e-6)
    nodes = [node("Sigmoid", "x", "s"), node("Mul", "x s", "y")]
    y = run(nodes, {"x": x}, "y")
    np.testing.assert_allclose(y, wide(lambda x: x * sigmoid(x), x), rtol=1e-6, atol=1e-30)
    assert kernel.calls == 4


def test_values_that_are_read_elsewhere_are_made(kernel: Watch, alone: Watch) -> None:
    nodes = [
        node("Add", "x x", "a"),
        node("Neg", "a", "b"),
        node("Abs", "b", "c"),
        node("ReduceSum", "a", "s", keepdims=0),
    ]
    x = floats(4, 5)
    c, s = run(nodes, {"x": x}, "c s")
    assert (kernel.calls, alone.calls) == (1, 1)
    np.testing.assert_array_equal(c, np.abs(2 * x))
    np.testing.assert_allclose(s, 2 * x.sum(), rtol=1e-5)


def test_outputs_inside_a_chain_are_kept(kernel: Watch, alone: Watch) -> None:
    nodes = [node("Neg", "x", "a"), node("Abs", "a", "b"), node("Sqrt", "b", "c")]
    x = floats(7)
    b, c = run(nodes, {"x": x}, "b c")
    np.testing.assert_array_equal(b, np.abs(x))
    np.testing.assert_array_equal(c, np.sqrt(np.abs(x)))
    assert (kernel.calls, alone.calls) == (1, 1)


def test_a_long_chain_is_one_call(kernel: Watch) -> None:
    nodes = [node("Relu" if i % 2 else "Neg", f"v{i}", f"v{i + 1}") for i in range(200)]
    x = floats(4)
    y = run(nodes, {"v0": x}, "v200")
    assert kernel.calls == 1
    expected = x
    for i in range(200):
        expected = np.maximum(expected, 0) if i % 2 else -expected
    np.testing.assert_array_equal(y, expected)


def test_deep_graphs_are_searched_in_step_with_their_size(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[int] = []
    upstream = subgraph._upstream

    def counted(*given: Any) -> Any:
        tried.append(len(region := upstream(*given)))
        return region

    monkeypatch.setattr(subgraph, "_upstream", counted)
    x = floats(3, 4)
    blocks, nodes = 60, []
    for i in range(blocks):  # each value is read by what is added to it, and through a sum
        nodes += [node("Abs", f"v{i}", f"a{i}"), node("ReduceMax", f"a{i}", f"m{i}", keepdims=1)]
        nodes += [node("Neg", f"m{i}", f"n{i}"), node("Add", f"v{i} n{i}", f"v{i + 1}")]
    run(nodes, {"v0": x}, f"v{blocks}")
    assert sum(tried) <= 4 * len(nodes)


def test_more_arrays_than_a_program_reads_still_add_up() -> None:
    feeds = {f"x{i}": floats(9, seed=i) for i in range(9)}
    nodes = [node("Add", "x0 x1", "s1")]
    nodes += [node("Add", f"s{i - 1} x{i}", f"s{i}") for i in range(2, 9)]
    total = run(nodes, feeds, "s8")
    np.testing.assert_allclose(total, sum(feeds.values()), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "shapes", [((500, 3), (500, 1)), ((40, 30, 5), (30, 1)), ((40, 30, 5), (40, 1, 1))], ids=str
)
def test_numbers_of_short_rows_are_repeated(
    shapes: tuple[tuple[int, ...], ...], kernel: Watch
) -> None:
    nodes = [node("Sub", "x z", "d"), node("Exp", "d", "y")]
    feeds = {
        name: floats(*shape, seed=len(shape)) for name, shape in zip("xz", shapes, strict=True)
    }
    y = run(nodes, feeds, "y")
    assert kernel.calls == 1
    np.testing.assert_allclose(y, wide(lambda x, z: np.exp(x - z), *feeds.values()), rtol=1e-6)


def test_other_dtypes_go_to_numpy(kernel: Watch) -> None:
    nodes = [node("Neg", "x", "y"), node("Abs", "y", "z")]
    x = np.array([[-3, 4]], np.int32)
    z = run(nodes, {"x": x}, "z", kinds={"x": 6, "z": 6})
    np.testing.assert_array_equal(z, [[3, 4]])
    assert z.dtype == np.int32
    assert kernel.calls == 0


@pytest.mark.parametrize("shape", [(0,), (3, 0, 2), ()])
def test_empty_arrays_and_scalars(shape: tuple[int, ...]) -> None:
    nodes = [node("Neg", "x", "y"), node("Exp", "y", "z")]
    x = np.full(shape, 0.5, np.float32)
    z = run(nodes, {"x": x}, "z")
    assert z.shape == shape
    np.testing.assert_allclose(z, np.exp(-x), rtol=1e-6)


def test_strided_and_misaligned_inputs() -> None:
    nodes = [node("Mul", "x x", "y"), node("Neg", "y", "z")]
    base = floats(8, 60)
    odd = np.frombuffer(b"\0" + base.tobytes(), np.uint8)[1:].view(np.float32).reshape(8, 60)
    for x in (base[:, ::2], base.T, base[::-1], odd):
        np.testing.assert_array_equal(run(nodes, {"x": x}, "z"), -x * x)


@given(
    hnp.mutually_broadcastable_shapes(num_shapes=3, max_dims=5, max_side=4),
    st.integers(-5, -1),
    st.integers(1, 3),
)
@settings(max_examples=60, deadline=None)
def test_whatever_broadcasts_in_numpy_broadcasts(shapes: Any, long: int, threads: int) -> None:
    """One axis is long: were all, the first example of five axes would fill the memory."""

    def lengthen(shape: tuple[int, ...]) -> tuple[int, ...]:
        end = len(shape)
        return tuple(n * 17 if n > 1 and i - end == long else n for i, n in enumerate(shape))

    feeds = {
        n: floats(*lengthen(s), seed=i)
        for i, (n, s) in enumerate(zip("abc", shapes.input_shapes, strict=True))
    }
    nodes = [node("Mul", "a b", "p"), node("Sub", "p c", "q"), node("Neg", "q", "z")]
    z = run(nodes, feeds, "z", threads=threads)
    a, b, c = (feeds[n].astype(np.float64) for n in "abc")
    assert z.shape == lengthen(shapes.result_shape)
    np.testing.assert_allclose(z, -(a * b - c), rtol=1e-5, atol=1e-5)


def test_an_absent_operand_is_refused_by_name() -> None:
    with pytest.raises(tenonnx.TenonnxError, match="Min 'y'"):
        run([node("Min", "_ x", "y")], {"x": floats(8)}, "y")
