"""Products that round their factors to bfloat16: values, and the option that asks for them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from running import BF16, Watch, floats, narrow, require_kernels
from scipy import special

import tenonnx
from models import FLOAT, model, node, value
from tenonnx.weights.sidefile import SideFiles
from tenonnx_cpu.jit.code.cpu import cpu
from tenonnx_cpu.matmul.bfloat16 import GEMM_TILES, bfloat16_panels, rounded
from tenonnx_cpu.precision import FAST_PRODUCTS

require_kernels()

narrows = pytest.mark.skipif(not cpu().bf16, reason="kernels are for a processor without bfloat16")

ACTIVATIONS: dict[str, Any] = {
    "none": lambda z: z,
    "Relu": lambda z: np.maximum(z, 0),
    "Gelu": lambda z: z * special.ndtr(z),
}


def opened(nodes: list[Any], weights: dict[str, Any], threads: int = 1, **more: Any) -> Any:
    """Return a session of nodes from x to y, in bfloat16 unless told otherwise."""
    proto = model(nodes, [value("x", FLOAT, more.pop("shape", None))], [value("y")], weights)
    options = more.pop("options", None) or tenonnx.SessionOptions()
    options.intra_op_num_threads = threads
    return tenonnx.InferenceSession(
        proto.SerializeToString(), options, providers=[more.pop("provider", BF16)]
    )


def test_weights_are_rounded_as_ieee_does() -> None:
    every = np.arange(0, 1 << 32, 4099, dtype=np.uint32).view(np.float32)
    halfway = (np.arange(1 << 16, dtype=np.uint32) << 16 | 0x8000).view(np.float32)
    odd = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 3.4e38, 1e-45], np.float32)
    for x in (every, halfway, odd):
        with np.errstate(invalid="ignore"):
            expected = x.astype(ml_dtypes.bfloat16)
        bits = rounded(x).view(ml_dtypes.bfloat16)
        np.testing.assert_array_equal(bits.astype(np.float32), expected.astype(np.float32))
        assert np.array_equal(np.signbit(bits), np.signbit(expected))


def test_panels_have_pairs_of_rows_side_by_side() -> None:
    w = floats(70, 45)
    panels = bfloat16_panels(w).view(ml_dtypes.bfloat16)
    assert panels.shape == (2, 48, 32, 2)
    whole = panels.transpose(1, 3, 0, 2).reshape(96, 64)
    np.testing.assert_array_equal(whole[:70, :45], w.astype(ml_dtypes.bfloat16))
    assert not whole[70:].any()
    assert not whole[:, 45:].any()


@narrows
@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize(
    ("rows", "depth", "columns"),
    [(1, 1, 1), (2, 40, 70), (17, 33, 31), (33, 64, 96), (130, 530, 200), (600, 96, 33)],
)
@pytest.mark.parametrize("form", ["MatMul", "alone", "Gemm", "turned", "widened"])
def test_factors_are_rounded_and_sums_are_not(
    name: str, rows: int, depth: int, columns: int, form: str, monkeypatch: Any
) -> None:
    kernel = Watch(GEMM_TILES, monkeypatch)
    x, w, b = floats(rows, depth), floats(depth, columns, seed=1), floats(columns, seed=2)
    stored = {"turned": w.T.copy(), "widened": w.astype(np.float16)}.get(form, w)
    weights, nodes = {"w": stored, "b": b}, []
    if form in ("Gemm", "turned"):
        nodes.append(node("Gemm", "x w b", "t", transB=int(form == "turned")))
    else:
        right = "w"
        if form == "widened":
            nodes.append(node("Cast", "w", "wide", to=FLOAT))
            right, w = "wide", stored.astype(np.float32)
        nodes.append(node("MatMul", f"x {right}", "t" if form == "alone" else "s"))
        if form == "alone":
            b = np.zeros_like(b)
            del weights["b"]
        else:
            nodes.append(node("Add", "s b", "t"))
    nodes.append(node("Identity" if name == "none" else name, "t", "y"))
    expected = narrow(x) @ narrow(w) + b
    limit = 1e-6 * (depth * (np.abs(narrow(x)) @ np.abs(narrow(w))).max() + np.abs(b).max())
    for threads in (1, 3):
        one = opened(nodes, weights, threads)
        for feed in (x, np.asfortranarray(x)):
            y = one.run(None, {"x": feed})[0]
            assert np.abs(y - ACTIVATIONS[name](expected)).max() <= limit
    assert kernel.calls == 4


@narrows
def test_rows_of_stacks_are_rows() -> None:
    x, w = floats(2, 3, 5, 40), floats(40, 50, seed=1)
    y = opened([node("MatMul", "x w", "y")], {"w": w}).run(None, {"x": x})[0]
    assert y.shape == (2, 3, 5, 50)
    assert np.abs(y - narrow(x) @ narrow(w)).max() < 1e-4


@narrows
def test_what_is_not_finite_stays_in_its_row() -> None:
    x, w = floats(40, 40), floats(40, 50, seed=1)
    x[3, 5], x[4, 6], x[5, 7] = np.nan, np.inf, 3.4e38
    one = opened([node("MatMul", "x w", "y")], {"w": w})
    y = one.run(None, {"x": x})[0]
    assert np.isnan(y[3]).all()
    assert np.isinf(y[4]).all()
    assert np.isinf(y[5]).all()
    assert np.isfinite(np.delete(y, [3, 4, 5], 0)).all()


@narrows
def test_panels_are_derived_once(tmp_path: Path) -> None:
    registry = tenonnx.WeightRegistry(SideFiles(tmp_path / "cache"))
    w = floats(512, 512)
    options = tenonnx.SessionOptions(weights=registry)
    nodes, x, sizes, sessions = [node("MatMul", "x w", "y")], floats(9, 512), [], []
    for provider in ("cpu", BF16, BF16):
        sessions.append(opened(nodes, {"w": w}, options=options, provider=provider))
        sessions[-1].run(None, {"x": x})
        sizes.append(registry.report().derived)
    assert sizes[1] - sizes[0] == w.nbytes / 2
    assert sizes[2] == sizes[1]
    assert registry.report().private == 0


@narrows
def test_without_copies_of_weights_there_are_no_panels() -> None:
    options = tenonnx.SessionOptions()
    options.add_session_config_entry("session.disable_prepacking", "1")
    x, w = floats(9, 40), floats(40, 50, seed=1)
    y = opened([node("MatMul", "x w", "y")], {"w": w}, options=options).run(None, {"x": x})[0]
    assert np.abs(y - x.astype(np.float64) @ w).max() < 1e-4


@narrows
def test_onnxruntimes_entry_asks_for_the_same() -> None:
    x, w = floats(9, 40), floats(40, 50, seed=1)
    options = tenonnx.SessionOptions()
    options.add_session_config_entry(FAST_PRODUCTS, "1")
    nodes = [node("MatMul", "x w", "y")]
    y, z = (
        opened(nodes, {"w": w}, options=given, provider=provider).run(None, {"x": x})[0]
        for given, provider in ((options, "cpu"), (None, BF16))
    )
    np.testing.assert_array_equal(y, z)
    assert np.abs(y - x.astype(np.float64) @ w).max() > 1e-3


@narrows
@pytest.mark.parametrize("form", ["model", "weights"])
def test_models_of_bfloat16_are_multiplied_in_it(form: str, monkeypatch: Any) -> None:
    """Not those that store weights so and widen them."""
    kernel = Watch(GEMM_TILES, monkeypatch)
    x, w = floats(20, 40), floats(40, 50, seed=1)
    if form == "model":
        nodes = [node("Cast", "x", "n", to=16), node("MatMul", "n w", "m"), node("Relu", "m", "r")]
        nodes.append(node("Cast", "r", "y", to=FLOAT))
    else:
        nodes = [node("Cast", "w", "v", to=FLOAT), node("MatMul", "x v", "m")]
        nodes.append(node("Relu", "m", "y"))
    one = opened(nodes, {"w": w.astype(ml_dtypes.bfloat16)}, provider="cpu")
    y = one.run(None, {"x": x})[0]
    left = narrow(x) if form == "model" else x.astype(np.float64)
    assert np.abs(y - np.maximum(left @ narrow(w), 0)).max() < 1e-4
    assert kernel.calls == (form == "model")


def test_another_precision_is_refused() -> None:
    with pytest.raises(tenonnx.InvalidArgument, match="precision is 'fp8'; expected model or bf16"):
        opened([node("Relu", "x", "y")], {}, provider=("cpu", {"precision": "fp8"}))


WITHOUT = """
import logging, sys
import numpy as np, tenonnx
logging.basicConfig(stream=sys.stdout, format="%(message)s")
x = np.random.default_rng(0).standard_normal((9, 40), np.float32)
made = [
    tenonnx.InferenceSession(sys.argv[1], providers=[provider]).run(None, {"x": x})[0]
    for provider in ("cpu", ("cpu", {"precision": "bf16"}), ("cpu", {"precision": "bf16"}))
]
assert all(np.array_equal(made[0], y) for y in made)
"""


def test_a_processor_without_bfloat16_says_so_once(tmp_path: Path) -> None:
    w, x = floats(40, 50), value("x", FLOAT, [None, 40])
    proto = model([node("MatMul", "x w", "y")], [x], [value("y")], {"w": w})
    path = tmp_path / "product.onnx"
    path.write_bytes(proto.SerializeToString())
    # Without kernels it is the same.
    settings = {"TENONNX_JIT": "0", "TENONNX_CACHE_DIR": str(tmp_path)}
    out = subprocess.run(
        [sys.executable, "-c", WITHOUT, str(path)],
        env=os.environ | settings, capture_output=True, text=True,
    )  # fmt: skip
    assert not out.returncode, out.stderr
    assert out.stdout.count("precision='bf16' changes nothing") == 1
