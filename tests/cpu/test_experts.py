"""Matrices chosen as the model runs, as layers of experts have them, against numpy."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from running import Watch, floats, require_kernels, session

import tenonnx
from models import INT64, node
from tenonnx_cpu.matmul.product import GEMM_OF_KIND, GEMV
from tenonnx_cpu.quantized import mixtures, routed

require_kernels()

COUNT, DEPTH, COLUMNS = 5, 96, 64


def layer(choose: str, is_left: bool, places: np.ndarray[Any, Any]) -> tuple[Any, Any]:
    """Return a session of the nodes that exporters write, and what it is fed."""
    stack = floats(COUNT, *((COLUMNS, DEPTH) if is_left else (DEPTH, COLUMNS)))
    x = floats(places.size, DEPTH, seed=1)
    x = x[:, :, None] if is_left else x[:, None, :]
    weights = {"stack": stack, "axis": np.array([2 if is_left else 1])}
    feeds = {"x": x, "places": places[:, None] if choose == "GatherND" else places}
    nodes = [
        node(choose, "stack places", "w"),
        node("MatMul", "w x" if is_left else "x w", "y3"),
        node("Squeeze", "y3 axis", "y"),
    ]
    return session(nodes, feeds, "y", weights, kinds={"places": INT64}), feeds


@pytest.mark.parametrize("choose", ["Gather", "GatherND"])
@pytest.mark.parametrize("is_left", [True, False], ids=["W x", "x W"])
@pytest.mark.parametrize("rows", [1, 3, 40])
def test_products(choose: str, is_left: bool, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    places = np.random.default_rng(2).integers(-COUNT, COUNT, rows)
    watches = [Watch(kernel["f32"], monkeypatch) for kernel in (GEMV, GEMM_OF_KIND)]
    done, feeds = layer(choose, is_left, places)
    (found,) = done.run(None, feeds)
    calls = sum(watch.calls for watch in watches)
    assert calls == (1 if rows < 8 else np.unique(places % COUNT).size)
    stack = floats(COUNT, *((COLUMNS, DEPTH) if is_left else (DEPTH, COLUMNS))).astype(np.float64)
    x = floats(rows, DEPTH, seed=1).astype(np.float64)
    expected = np.einsum("pnk,pk->pn" if is_left else "pkn,pk->pn", stack[places], x)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())


def test_no_matrix_is_copied() -> None:
    done, feeds = layer("GatherND", True, np.arange(40) % COUNT)
    for _ in range(3):  # the first of which import, and make memory that is kept
        done.run(None, feeds)
    tracemalloc.start()
    done.run(None, feeds)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 40 * DEPTH * COLUMNS * 4 / 4


@pytest.mark.parametrize("choose", ["Gather", "GatherND"])
def test_a_matrix_that_is_not_there(choose: str) -> None:
    done, feeds = layer(choose, True, np.array([0, COUNT]))
    with pytest.raises(tenonnx.RuntimeException, match=f"{COUNT}"):
        done.run(None, feeds)


@pytest.mark.parametrize("name", ["mixtral", "mixtral-dynamo"])
def test_exported_experts_are_read_in_place(name: str) -> None:
    path = Path(__file__).parents[1] / "exports" / f"{name}.onnx"
    steps = tenonnx.InferenceSession(path, providers=["cpu"]).plan.steps
    joined = [step for step in steps if "MatMul" in {n.op_type for n in step.nodes[1:]}]
    assert [step.nodes[0].op_type.removesuffix("ND") for step in joined] == ["Gather"] * 4


def mixture(name: str, rows: int, fusion: int) -> tuple[list[Any], dict[str, Any], dict[str, Any]]:
    """Return a node of four experts of 64 inputs and 32 hidden values, its feeds and weights."""
    random = np.random.default_rng(7)
    inner = 64 if fusion else 32
    weights: dict[str, Any] = {"b1": floats(4, inner), "b2": floats(4, 64)}
    for place, (outer, depth) in {"1": (inner, 64), "2": (64, 32), "3": (32, 64)}.items():
        if name == "MoE":
            weights[f"w{place}"] = floats(4, outer, depth, seed=depth) / 8
        else:
            weights[f"w{place}"] = random.integers(0, 256, (4, outer, depth // 2), np.uint8)
            weights[f"s{place}"] = random.random((4, outer, depth // 32), np.float32) / 16
            weights[f"z{place}"] = random.integers(0, 256, (4, outer, 1), np.uint8)
    names = "x r w1 b1 w2 b2" if name == "MoE" else "x r w1 s1 b1 w2 s2 b2"
    if not fusion:
        names += " w3" if name == "MoE" else " w3 s3"
    if name == "QMoE" and fusion:
        names += " _ _ _ z1 z2"
    attributes = {"expert_weight_bits": 4, "block_size": 32} if name == "QMoE" else {}
    made = node(
        name, names, "y", domain="com.microsoft", k=2, activation_type="swiglu",
        swiglu_fusion=fusion, normalize_routing_weights=1, **attributes,
    )  # fmt: skip
    feeds = {"x": floats(rows, 64), "r": floats(rows, 4, seed=1)}
    return [made], feeds, {n: array for n, array in weights.items() if n in names.split()}


@pytest.mark.parametrize("name", ["MoE", "QMoE"])
@pytest.mark.parametrize("fusion", [0, 1])
@pytest.mark.parametrize("rows", [1, 9])
def test_mixtures(name: str, fusion: int, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes, feeds, weights = mixture(name, rows, fusion)
    given = nodes, feeds, "y", weights
    with monkeypatch.context() as patch:
        patch.setenv("TENONNX_JIT", "0")
        (expected,) = session(*given, domains={"com.microsoft": 1}).run(None, feeds)
    monkeypatch.setattr(routed, "MAX_ROWS_PER_EXPERT", 0)
    taken = 0
    plain = mixtures.matmul_q if name == "QMoE" else mixtures.product

    def counted(*arguments: Any, **named: Any) -> Any:
        nonlocal taken
        made = plain(*arguments, **named)
        taken += made is not None
        return made

    monkeypatch.setattr(mixtures, plain.__name__, counted)
    (y,) = session(*given, domains={"com.microsoft": 1}).run(None, feeds)
    assert taken >= 2
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-4)


def codes_of_experts(
    bits: int, zeros: bool, fusion: int, kind: str, rows: int, **attributes: Any
) -> tuple[list[Any], dict[str, Any], dict[str, Any]]:
    """Return a node of five experts, two of which a row goes through, its feeds and weights."""
    random = np.random.default_rng(8)
    inner, weights = 128, {}
    names = "x r w1 s1 b1 w2 s2 b2" + (" _ _ _ z1 z2" if zeros else "")
    outer = 2 * inner if kind == "swiglu" else inner
    for place, (columns, depth) in {"1": (outer, 64), "2": (64, inner)}.items():
        blocks = depth // 32
        weights[f"b{place}"] = floats(5, columns, seed=columns)
        weights[f"w{place}"] = random.integers(0, 256, (5, columns, depth * bits // 8), np.uint8)
        weights[f"s{place}"] = random.random((5, columns, blocks), np.float32) / (2 << bits)
        weights[f"z{place}"] = random.integers(0, 256, (5, columns, blocks * bits // 8), np.uint8)
    made = node(
        "QMoE", names, "y", domain="com.microsoft", k=2, activation_type=kind,
        swiglu_fusion=fusion, expert_weight_bits=bits, block_size=32, **attributes,
    )  # fmt: skip
    feeds = {"x": floats(rows, 64), "r": floats(rows, 5, seed=1)}
    return [made], feeds, {n: array for n, array in weights.items() if n in names.split()}


BOUNDED = {"activation_alpha": 1.5, "activation_beta": 1.0, "swiglu_limit": 0.5}


@pytest.mark.parametrize(
    ("bits", "zeros", "fusion", "kind", "rows", "attributes"),
    [
        (4, False, 1, "swiglu", 1, {"normalize_routing_weights": 1}),
        (4, True, 2, "swiglu", 17, BOUNDED),
        (8, True, 1, "swiglu", 3, BOUNDED | {"swiglu_limit_after_activation": 1}),
        (8, False, 0, "relu", 9, {}),
        (4, True, 0, "gelu", 2, {"normalize_routing_weights": 1}),
        (4, False, 0, "silu", 5, {}),
    ],
)
def test_mixtures_as_one_launch(
    bits: int, zeros: bool, fusion: int, kind: str, rows: int, attributes: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    nodes, feeds, weights = codes_of_experts(bits, zeros, fusion, kind, rows, **attributes)
    given = nodes, feeds, "y", weights
    domains = {"com.microsoft": 1}
    with monkeypatch.context() as patch:
        patch.setenv("TENONNX_JIT", "0")
        (expected,) = session(*given, domains=domains).run(None, feeds)
    watch = Watch(routed.MIXTURE[bits], monkeypatch)
    (y,) = session(*given, domains=domains).run(None, feeds)
    assert watch.calls == 1
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())


def test_experts_without_a_number() -> None:
    """A score that is none is chosen last, and leaves its row without numbers."""
    nodes, feeds, weights = codes_of_experts(4, False, 1, "swiglu", 3)
    feeds["r"][1, 2] = np.nan
    done = session(nodes, feeds, "y", weights, domains={"com.microsoft": 1})
    (y,) = done.run(None, feeds)
    assert np.isnan(y[1]).all()
    assert np.isfinite(y[[0, 2]]).all()
