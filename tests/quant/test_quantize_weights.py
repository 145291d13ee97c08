"""Weights in 4 and 8 bits: every number against the formula, and what is written."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper

import tenonnx
import tenonnx_quant
from models import FLOAT, INT64, model, node, value
from tenonnx_quant import Selection, WeightScheme, quantize_weights

RANDOM = np.random.default_rng(0)
K, N = 96, 24
W = RANDOM.standard_normal((K, N), dtype=np.float32)
X = RANDOM.standard_normal((3, K), dtype=np.float32)


def product(w: Any = W, op: str = "MatMul", **attributes: int) -> Any:
    kind = onnx.helper.np_dtype_to_tensor_dtype(w.dtype)
    x = value("x", kind, ["n", K])
    return model(
        [node(op, "x w", "y", name="p", **attributes)], [x], [value("y", kind, ["n", N])], {"w": w}
    )


def written(path: Path) -> dict[str, Any]:
    """Return the file's initializers; of 4 bits one to a byte."""
    return {t.name: numpy_helper.to_array(t) for t in onnx.load(path).graph.initializer}


def plain(path: Path) -> tenonnx.InferenceSession:
    options = tenonnx.SessionOptions()
    options.graph_optimization_level = tenonnx.GraphOptimizationLevel.ORT_DISABLE_ALL
    return tenonnx.InferenceSession(path, options)


def spread(values: Any, axis: int, size: int, length: int) -> Any:
    repeated = np.repeat(values.astype(np.float64), size, axis)
    return np.take(repeated, np.arange(length), axis)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("block", [0, 16, 64])
@pytest.mark.parametrize("through", ["MatMul", "Gemm", "transB", "Transpose"])
def test_every_number_is_as_near_as_its_scale_allows(
    tmp_path: Path, bits: int, symmetric: bool, block: int, through: str
) -> None:
    path, target = tmp_path / "float.onnx", tmp_path / "out.onnx"
    axis = 1 if through in ("transB", "Transpose") else 0
    w = np.ascontiguousarray(W.T) if axis else W
    proto = product(w, "MatMul" if through == "MatMul" else "Gemm", transB=axis) if (
        through != "MatMul"
    ) else product(w)  # fmt: skip
    if through == "Transpose":
        proto = model(
            [node("Transpose", "w", "t"), node("MatMul", "x t", "y")],
            [value("x", FLOAT, ["n", K])], [value("y", FLOAT, ["n", N])], {"w": w},
        )  # fmt: skip
    onnx.save(proto, path)
    quantize_weights(path, target, WeightScheme(bits, block, symmetric))
    onnx.checker.check_model(target, full_check=True)
    stored = written(target)
    assert "w" not in stored
    scale, q = stored["w.scale"], stored["w.quantized"].astype(np.float64)
    zero = stored.get("w.zero_point", np.zeros_like(scale)).astype(np.float64)
    if not block:
        scale, zero = np.expand_dims(scale, axis), np.expand_dims(zero, axis)
    size = block or K
    scale, zero = (spread(part, axis, size, K) for part in (scale, zero))
    near = (q - zero) * scale
    # Rounding zero points moves a range by half a step at most.
    assert np.all(np.abs(near - w) <= scale * (0.5 if symmetric else 1) * (1 + 1e-5))
    assert symmetric == ("w.zero_point" not in stored)
    (y,) = plain(target).run(None, {"x": X})
    np.testing.assert_allclose(y, X @ (near.T if axis else near), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("symmetric", [True, False])
def test_matmulnbits_holds_the_same_numbers(tmp_path: Path, bits: int, symmetric: bool) -> None:
    path = tmp_path / "float.onnx"
    bias = RANDOM.standard_normal(N, dtype=np.float32)
    nodes = [node("Gemm", "x w b", "y", name="p")]
    onnx.save(
        model(
            nodes, [value("x", FLOAT, ["n", K])], [value("y", FLOAT, ["n", N])], {"w": W, "b": bias}
        ),
        path,
    )
    answers = []
    for form in ("qdq", "matmulnbits"):
        target = tmp_path / f"{form}.onnx"
        scheme = WeightScheme(bits, 64, symmetric, form)  # type: ignore[arg-type]  # two literals
        quantize_weights(path, target, scheme)
        answers.append(plain(target).run(None, {"x": X})[0])
    np.testing.assert_allclose(answers[0], answers[1], rtol=1e-5, atol=1e-5)
    (made,) = onnx.load(tmp_path / "matmulnbits.onnx").graph.node
    assert (made.op_type, made.domain, made.name) == ("MatMulNBits", "com.microsoft", "p")
    q, scale = (written(tmp_path / "matmulnbits.onnx")[f"w.{p}"] for p in ("quantized", "scale"))
    assert q.shape == (N, 2, 64 * bits // 8)
    assert scale.shape == (N, 2)


def tied(dtype: Any = np.float32) -> Any:
    table = RANDOM.standard_normal((50, 64)).astype(dtype)
    kind = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    nodes = [
        node("Gather", "table ids", "x", name="embed"),
        node("Transpose", "table", "head", perm=[1, 0]),
        node("MatMul", "x head", "y", name="lm_head"),
    ]
    ids = value("ids", INT64, ["b", "n"])
    outputs = [value("y", kind, ["b", "n", 50]), value("x", kind, ["b", "n", 64])]
    return model(nodes, [ids], outputs, {"table": table})


@pytest.mark.parametrize("form", ["qdq", "matmulnbits"])
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("symmetric", [True, False])
def test_a_table_that_is_read_twice_stays_one(
    tmp_path: Path, form: Any, bits: int, symmetric: bool
) -> None:
    path, target = tmp_path / "float.onnx", tmp_path / "out.onnx"
    onnx.save(tied(), path)
    report = quantize_weights(path, target, WeightScheme(bits, 32, symmetric, form))
    onnx.checker.check_model(target)
    stored = written(target)
    assert report.quantized == 1
    assert sum(array.nbytes for array in stored.values() if array.size >= 50 * 32) <= 50 * 64
    assert "table" not in stored
    ids = np.array([[3, 49, 0]])
    y, x = plain(target).run(None, {"ids": ids})
    wanted = tenonnx.InferenceSession(path).run(None, {"ids": ids})
    # Gather has no 4 bits in standard ONNX: such a table gets 8.
    most = 0.01 if bits == 8 or form == "qdq" else 0.1
    for found, expected in zip((y, x), wanted, strict=True):
        assert 0 < np.linalg.norm(found - expected) <= most * np.linalg.norm(expected)
    rows = x.reshape(3, 64)
    np.testing.assert_allclose(rows @ rows.T, y[0][:, ids[0]], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_narrow_floats_have_scales_of_their_own_type(tmp_path: Path, dtype: Any) -> None:
    path, target = tmp_path / "float.onnx", tmp_path / "out.onnx"
    w = W.astype(dtype)
    onnx.save(product(w), path)
    quantize_weights(path, target, WeightScheme())
    onnx.checker.check_model(target, full_check=True)
    stored = written(target)
    scale = stored["w.scale"]
    assert scale.dtype == dtype
    near = stored["w.quantized"].astype(np.float64) * spread(scale, 0, 32, K)
    # A scale that was rounded down lets the greatest numbers be cut.
    slack = 1 + 8 * float(ml_dtypes.finfo(dtype).eps)
    assert np.all(np.abs(near - w.astype(np.float64)) <= spread(scale, 0, 32, K) / 2 * slack)


def test_models_of_older_opsets_are_converted(tmp_path: Path) -> None:
    path, target = tmp_path / "float.onnx", tmp_path / "out.onnx"
    nodes = [node("MatMul", "x w", "h"), node("ReduceMean", "h", "y", axes=[1], keepdims=0)]
    inputs, outputs = [value("x", FLOAT, ["n", K])], [value("y", FLOAT, ["n"])]
    onnx.save(model(nodes, inputs, outputs, {"w": W}, opset=13, ir_version=7), path)
    quantize_weights(path, target, WeightScheme(8, 16))
    onnx.checker.check_model(target, full_check=True)
    assert onnx.load(target).opset_import[0].version == 21
    (y,) = plain(target).run(None, {"x": X})
    np.testing.assert_allclose(y, (X @ W).mean(1), atol=0.02)


def test_weights_of_subgraphs_and_constants(tmp_path: Path) -> None:
    path, target = tmp_path / "float.onnx", tmp_path / "out.onnx"
    body = onnx.helper.make_graph(
        [node("MatMul", "x w", "t")],
        "then",
        [],
        [value("t", FLOAT, ["n", N])],
        [numpy_helper.from_array(W, "w")],
    )
    other = numpy_helper.from_array(W[:, ::-1].copy(), "v")
    orelse = onnx.helper.make_graph(
        [node("Constant", "", "v", value=other), node("MatMul", "x v", "e")],
        "else", [], [value("e", FLOAT, ["n", N])],
    )  # fmt: skip
    inputs = [value("c", TensorProto.BOOL, []), value("x", FLOAT, ["n", K])]
    nodes = [node("If", "c", "y", then_branch=body, else_branch=orelse)]
    onnx.save(model(nodes, inputs, [value("y", FLOAT, ["n", N])]), path)
    assert quantize_weights(path, target, WeightScheme(8, 32)).quantized == 2
    onnx.checker.check_model(target, full_check=True)
    for chosen, w in ((True, W), (False, W[:, ::-1])):
        (y,) = plain(target).run(None, {"c": np.array(chosen), "x": X})
        np.testing.assert_allclose(y, X @ w, atol=0.2)


def test_weights_that_are_inputs_or_go_through_functions(tmp_path: Path) -> None:
    path, target = tmp_path / "float.onnx", tmp_path / "out.onnx"
    imports = [onnx.helper.make_opsetid("", 21)]
    dense = onnx.helper.make_function(
        "local", "Dense", ["a", "b"], ["c"], [node("MatMul", "a b", "c")], imports
    )
    nodes = [node("Dense", "x w", "h", domain="local"), node("MatMul", "h v", "y")]
    inputs = [value("x", FLOAT, ["n", K]), value("v", FLOAT, [N, 4])]
    weights = {"w": W, "v": W[:N, :4].copy()}
    outputs, domains = [value("y", FLOAT, ["n", 4])], {"local": 1}
    proto = model(nodes, inputs, outputs, weights, functions=[dense], domains=domains)
    onnx.save(proto, path)
    assert quantize_weights(path, target, WeightScheme(8, 16)).quantized == 2
    onnx.checker.check_model(target, full_check=True)
    assert [given.name for given in onnx.load(target).graph.input] == ["x"]
    (y,) = plain(target).run(None, {"x": X})
    expected = X @ W @ weights["v"]
    assert np.linalg.norm(y - expected) < 0.01 * np.linalg.norm(expected)


def test_excluded_nodes_keep_their_weights(tmp_path: Path) -> None:
    path, target = tmp_path / "float.onnx", tmp_path / "out.onnx"
    nodes = [
        node("MatMul", "x w", "a", name="/layers.0/up"),
        node("MatMul", "x v", "b", name="/head/out"),
        node("Add", "a b", "y"),
    ]
    inputs = [value("x", FLOAT, ["n", K])]
    onnx.save(model(nodes, inputs, [value("y", FLOAT, ["n", N])], {"w": W, "v": -W}), path)
    selection = Selection(("MatMul",), ("/head/*",))
    quantize_weights(path, target, WeightScheme(selection=selection))
    np.testing.assert_array_equal(written(target)["v"], -W)
    assert "w" not in written(target)


def test_a_model_may_be_quantized_in_place(tmp_path: Path) -> None:
    path = tmp_path / "float.onnx"
    onnx.save(product(), path, save_as_external_data=True, location="float.onnx.data")
    report = quantize_weights(path, path, WeightScheme(8), data=[{"x": X}])
    assert [file.name for file in report.written] == ["float.onnx.data", "float.onnx"]
    (accuracy,) = report.accuracy
    error = plain(path).run(None, {"x": X})[0].astype(np.float64) - X @ W
    assert accuracy.largest == pytest.approx(np.abs(error).max(), rel=1e-2)
    assert accuracy.mean == pytest.approx(np.abs(error).mean(), rel=1e-2)
    expected = 10 * np.log10(((X @ W) ** 2).sum() / (error**2).sum())
    assert accuracy.snr == pytest.approx(expected, rel=1e-2)


def test_blocks_of_zeros(tmp_path: Path) -> None:
    path, target = tmp_path / "float.onnx", tmp_path / "out.onnx"
    onnx.save(product(np.zeros_like(W)), path)
    for symmetric in (True, False):
        quantize_weights(path, target, WeightScheme(symmetric=symmetric))
        assert not plain(target).run(None, {"x": X})[0].any()


def test_what_is_refused(tmp_path: Path) -> None:
    path, target = tmp_path / "float.onnx", tmp_path / "out.onnx"
    onnx.save(product(), path)
    for bad, message in (
        ({"bits": 3}, "4 or 8 bits, not of 3"),
        ({"block_size": 20}, "not 20"),
        ({"block_size": 0, "form": "matmulnbits"}, "divides columns into blocks"),
    ):
        with pytest.raises(tenonnx.InvalidArgument, match=message):
            WeightScheme(**bad)  # type: ignore[arg-type]  # of various types
    for selection, message in (
        (Selection(("Softmax",)), "Softmax cannot be quantized"),
        (Selection(("MatMul",), ("q",)), "no node is called 'q'"),
        (Selection(("MatMul",), ("p",)), "no weight to quantize"),
    ):
        with pytest.raises(tenonnx.InvalidArgument, match=message):
            quantize_weights(path, target, WeightScheme(selection=selection))
    assert not target.exists()
    assert tenonnx_quant.Report([], 0, 0, 0).accuracy == ()


CHILD = """
import json, sys
import tenonnx, tenonnx_quant
def anonymous():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("RssAnon")) << 10
tenonnx_quant.quantize_weights(sys.argv[1], sys.argv[2])
before, most = anonymous(), 0
def watch(doing, done):
    global most
    most = max(most, anonymous() - before)
tenonnx_quant.quantize_weights(sys.argv[3], sys.argv[4], progress=watch)
print(json.dumps(max(most, anonymous() - before)))
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
def test_private_memory_does_not_grow_with_the_model(tmp_path: Path) -> None:
    side, layers = 1024, 24
    names = [f"w{i}" for i in range(layers)]
    matrices = {name: np.full((side, side), i + 1, np.float32) for i, name in enumerate(names)}
    values = ["x", *(f"h{i}" for i in range(layers))]
    nodes = [node("MatMul", f"{values[i]} w{i}", values[i + 1]) for i in range(layers)]
    large = model(nodes, [value("x", FLOAT, [1, side])], [value(values[-1])], matrices)
    onnx.save(large, tmp_path / "large.onnx", save_as_external_data=True, location="large.data")
    onnx.save(product(), tmp_path / "small.onnx")
    arguments = [tmp_path / name for name in ("small.onnx", "s.onnx", "large.onnx", "l.onnx")]
    done = subprocess.run(
        [sys.executable, "-c", CHILD, *map(str, arguments)],
        capture_output=True, text=True, check=False,
        env={**os.environ, "TENONNX_JIT": "0", "MALLOC_TRIM_THRESHOLD_": "65536"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    # One matrix has 4 MiB; all of them have 96, and 15 in 4 bits.
    assert json.loads(done.stdout) < 8 << 20
