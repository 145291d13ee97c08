"""Products with quantized matrices, against float64: every kernel, layout and width."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import onnx
import pytest
from running import require_kernels

import tenonnx
from models import FLOAT, model, node, value
from tenonnx_cpu.capture.launch import done
from tenonnx_cpu.quantized import nbits as nbits_module
from tenonnx_cpu.quantized import product as products
from tenonnx_cpu.quantized.matrix import Quantized
from tenonnx_cpu.quantized.product import matmul_q, request

require_kernels()

EXACT = 2e-6
"""Of the sum of magnitudes: what float32 loses."""

ROUNDED = 1 / 127
"""Of a block's greatest activation times the weights: what a byte loses at most."""


@pytest.fixture(autouse=True)
def _compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENONNX_JIT", "1")


def unpacked(flat: np.ndarray[Any, Any], bits: int) -> np.ndarray[Any, Any]:
    shifts = np.arange(0, 8, bits)
    return ((flat[..., None] >> shifts) & ((1 << bits) - 1)).reshape(*flat.shape[:-1], -1)


class Problem:
    """A quantized matrix, and what it is in float64."""

    def __init__(
        self, bits: int, depth: int, columns: int, block: int,
        *, by_column: bool, zeros: bool = False, signed: bool = False,
    ) -> None:  # fmt: skip
        rng = np.random.default_rng(bits + depth + columns)
        blocks = -(-depth // block)
        lines, across = (columns, blocks * block) if by_column else (depth, columns)
        codes = rng.integers(0, 256, (lines, across * bits // 8), np.uint8)
        scale_lines = (columns, blocks) if by_column else (blocks, columns)
        scales = (rng.random(scale_lines) * 0.1 + 0.01).astype(np.float32)
        points = None
        if zeros:
            points = rng.integers(
                0, 256, (scale_lines[0], -(-scale_lines[1] * bits // 8)), np.uint8
            )
        middle = 1 << bits - 1
        zero = 0 if signed else middle
        self.matrix = Quantized(
            codes.reshape(-1), scales, points, bits, depth, columns, block, by_column, signed, zero
        )

        def numbers(flat: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
            found = unpacked(flat, bits).astype(np.float64)
            return np.where(found >= middle, found - 2 * middle, found) if signed else found

        offsets = np.full(scale_lines, float(zero))
        if points is not None:
            offsets = numbers(points)[:, : scale_lines[1]]
        axis = 1 if by_column else 0
        spread = [np.repeat(part, block, axis) for part in (offsets, scales.astype(np.float64))]
        whole = (numbers(codes) - spread[0][:, :across][:lines]) * spread[1][:, :across][:lines]
        self.dense = whole[:, :depth].T if by_column else whole

    def limit(self, x: np.ndarray[Any, Any], activations: str) -> np.ndarray[Any, Any]:
        """Return how far a result may be from the answer."""
        magnitudes = np.abs(self.dense)
        limit = EXACT * (np.abs(x) @ magnitudes) + 1e-6
        if activations == "int8":
            width = min(128, self.matrix.block)
            padded = np.pad(np.abs(x), ((0, 0), (0, -x.shape[1] % width)))
            most = padded.reshape(len(x), -1, width).max(axis=2)
            tops = np.repeat(most, width, axis=1)[:, : x.shape[1]]
            limit = limit + ROUNDED / 2 * 1.01 * (tops @ magnitudes)
        return limit

    def check(self, rows: int, activations: Any, threads: int = 1) -> np.ndarray[Any, Any]:
        request(self.matrix, activations)
        depth = self.matrix.depth
        x = np.random.default_rng(rows).standard_normal((rows, depth)).astype(np.float32)
        y = done(matmul_q(x, self.matrix, threads, activations=activations))
        assert y is not None
        wide = x.astype(np.float64)
        assert np.all(np.abs(y - wide @ self.dense) <= self.limit(wide, activations))
        return y


SHAPES = [
    (256, 256, 32),
    (512, 333, 64),
    (128, 72, 16),
    (96, 40, 32),
    (384, 136, 128),
    (80, 48, 80),
]


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("by_column", [True, False])
@pytest.mark.parametrize("zeros", [True, False])
@pytest.mark.parametrize("activations", ["int8", "float32"])
def test_products_of_every_shape(bits: int, by_column: bool, zeros: bool, activations: str) -> None:
    for depth, columns, block in SHAPES:
        columns += 0 if by_column else -columns % 4
        for signed in (False, True):
            problem = Problem(
                bits, depth, columns, block, by_column=by_column, zeros=zeros, signed=signed
            )
            for rows in (1, 2, 3, 4, 17):
                problem.check(rows, activations)


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("bits", [4, 8])
def test_a_few_rows_of_bytes_are_what_each_is_alone(bits: int, zeros: bool) -> None:
    matrix = Problem(bits, 256, 72, 32, by_column=True, zeros=zeros).matrix
    request(matrix, "int8")
    x = np.random.default_rng(5).standard_normal((4, 256)).astype(np.float32)
    alone = [done(matmul_q(row[None], matrix, 1))[0].copy() for row in x]
    for rows in (2, 3, 4):
        np.testing.assert_array_equal(done(matmul_q(x[:rows], matrix, 1)), alone[:rows])


@pytest.mark.parametrize("by_column", [True, False])
@pytest.mark.parametrize("activations", ["int8", "float32"])
@pytest.mark.parametrize("rows", [1, 3, 40])
def test_threads_change_sums_by_rounding_alone(
    by_column: bool, activations: str, rows: int
) -> None:
    problem = Problem(4, 1024, 1096, 32, by_column=by_column, zeros=True)
    one, four = (problem.check(rows, activations, threads) for threads in (1, 4))
    np.testing.assert_allclose(one, four, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("activations", ["int8", "float32"])
@pytest.mark.parametrize("zeros", [True, False])
def test_rows_a_power_of_two_apart_may_begin_anywhere_in_a_cache_line(
    bits: int, activations: str, zeros: bool
) -> None:
    columns = 8192 // bits if zeros else 9216 * 8 // bits
    problem = Problem(bits, 64, columns, 32, by_column=False, zeros=zeros)
    codes = problem.matrix.codes
    room = np.empty(codes.size + 128, np.uint8)
    for shift in (0, 1, 16, 63):
        start = -room.ctypes.data % 64 + shift
        moved = room[start : start + codes.size]
        moved[:] = codes
        problem.matrix = dataclasses.replace(problem.matrix, codes=moved)
        for rows in (1, 3):
            problem.check(rows, activations, threads=2)


def test_kernels_that_read_codes_once_are_used() -> None:
    column = Problem(4, 256, 256, 32, by_column=True).matrix
    line = Problem(4, 256, 256, 32, by_column=False).matrix
    chosen = {
        (matrix.by_column, activations, rows): products._choose(matrix, rows, activations)[0].name
        for matrix in (column, line)
        for activations in ("int8", "float32")
        for rows in (1, 16)
    }
    assert chosen == {
        (True, "int8", 1): "q_dots_4",
        (True, "int8", 16): "q_bytes_4",
        (True, "float32", 1): "q_reals_4",
        (True, "float32", 16): "q_gemm_4",
        (False, "int8", 1): "q_gemv_bytes_4",
        (False, "int8", 16): "q_bytes_4",
        (False, "float32", 1): "q_gemv_reals_4",
        (False, "float32", 16): "q_gemm_4",
    }


@pytest.mark.parametrize("by_column", [True, False])
@pytest.mark.parametrize("rows", [2, 16])
@pytest.mark.parametrize("poison", [np.nan, np.inf])
@pytest.mark.parametrize("activations", ["int8", "float32"])
def test_a_row_that_is_not_finite_spoils_no_other(
    by_column: bool, rows: int, poison: float, activations: Any
) -> None:
    matrix = Problem(4, 256, 256, 32, by_column=by_column).matrix
    request(matrix, activations)
    x = np.random.default_rng(0).standard_normal((rows, 256)).astype(np.float32)
    clean = done(matmul_q(x, matrix, 1, activations=activations))
    x[1, 7] = poison
    y = done(matmul_q(x, matrix, 1, activations=activations))
    assert clean is not None
    assert y is not None
    others = [row for row in range(rows) if row != 1]
    np.testing.assert_array_equal(y[others], clean[others])
    assert not np.isfinite(y[1]).any() if np.isnan(poison) else not np.isfinite(y[1]).all()


@pytest.mark.parametrize("rows", [1, 4, 9])
@pytest.mark.parametrize("by_column", [True, False])
def test_what_is_done_to_a_product(rows: int, by_column: bool) -> None:
    problem = Problem(4, 256, 160, 32, by_column=by_column)
    request(problem.matrix, "float32")
    x, residual = (np.random.default_rng(rows).standard_normal((rows, n)) for n in (256, 160))
    bias = np.linspace(-1, 1, 160, dtype=np.float32)
    made = matmul_q(
        x.astype(np.float32), problem.matrix, 1, bias, residual.astype(np.float32),
        activations="float32",
    )  # fmt: skip
    y = done(made)
    np.testing.assert_allclose(y, x @ problem.dense + bias + residual, rtol=1e-4, atol=1e-3)


def nbits(problem: Problem, x: Any, level: int, **extras: Any) -> Any:
    """Run MatMulNBits on the kernels, and on numpy."""
    matrix = problem.matrix
    weights = {"B": matrix.codes.reshape(matrix.columns, matrix.scales.shape[1], -1), **extras}
    weights.setdefault("s", matrix.scales)
    if matrix.zeros is not None:
        weights["z"] = matrix.zeros
    names = [name if name in weights else "_" for name in ("z", "g", "b")]
    made = node(
        "MatMulNBits", " ".join(("x B s", *names)), "y",
        domain="com.microsoft", K=matrix.depth, N=matrix.columns, bits=matrix.bits,
        block_size=matrix.block, accuracy_level=level,
    )  # fmt: skip
    kind = onnx.helper.np_dtype_to_tensor_dtype(x.dtype)
    ends = [value("x", kind, [None] * x.ndim)], [value("y", kind, [None] * x.ndim)]
    proto = model([made], *ends, weights, domains={"com.microsoft": 1}).SerializeToString()
    results = []
    for mode in ("1", "0"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("TENONNX_JIT", mode)
            results += tenonnx.InferenceSession(proto).run(None, {"x": x})
    return results


@pytest.mark.parametrize("rows", [1, 6])
@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("zeros", ["", "packed", "real"])
@pytest.mark.parametrize("level", [0, 4])
def test_matmul_nbits(
    rows: int, bits: int, zeros: str, level: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = Problem(bits, 256, 96, 32, by_column=True, zeros=zeros == "packed")
    calls = []
    compiled = nbits_module.matmul_q

    def noting(*arguments: Any, **options: Any) -> Any:
        calls.append(compiled(*arguments, **options))
        return calls[-1]

    monkeypatch.setattr(nbits_module, "matmul_q", noting)
    x = np.random.default_rng(0).standard_normal((2, rows, 256)).astype(np.float32)
    bias = np.linspace(-1, 1, 96, dtype=np.float32)
    extras = {"b": bias, "g": np.repeat(np.arange(8, dtype=np.int32), 32)}
    answer = x.astype(np.float64) @ problem.dense + bias
    if zeros == "real":
        shift = np.random.default_rng(1).random((96, 8)).astype(np.float32)
        extras["z"] = shift + np.float32(problem.matrix.zero)
        spread = np.repeat(shift * problem.matrix.scales.astype(np.float64), 32, axis=1)
        answer = answer - x.astype(np.float64) @ spread.T
    fast, plain = nbits(problem, x, level, **extras)
    assert len(calls) == 1
    assert calls[0] is not None
    limit = problem.limit(x.reshape(-1, 256).astype(np.float64), "int8" if level else "float32")
    limit = limit.reshape(fast.shape) * (1 if zeros != "real" else 2)
    assert np.all(np.abs(fast - answer) <= limit)
    np.testing.assert_allclose(plain, answer, rtol=1e-4, atol=1e-4)


def test_matmul_nbits_of_halves() -> None:
    problem = Problem(4, 128, 64, 32, by_column=True)
    x = np.random.default_rng(0).standard_normal((3, 128)).astype(np.float16)
    fast, plain = nbits(problem, x, 0, s=problem.matrix.scales.astype(np.float16))
    assert fast.dtype == np.float16
    np.testing.assert_allclose(fast, plain, rtol=2e-3, atol=2e-2)


def test_matmul_nbits_of_shuffled_groups() -> None:
    problem = Problem(4, 128, 64, 32, by_column=True)
    x = np.random.default_rng(0).standard_normal((3, 128)).astype(np.float32)
    groups = np.random.default_rng(1).permutation(np.repeat(np.arange(4, dtype=np.int32), 32))
    fast, plain = nbits(problem, x, 0, g=groups)
    np.testing.assert_allclose(fast, plain, rtol=1e-5, atol=1e-5)


LEVELS = [(None, True, False), (None, False, True), ("4", True, False), ("4", True, True)]


@pytest.mark.parametrize(
    ("level", "rounds", "turned"), [*LEVELS, ("0", False, False), ("0", False, True)]
)
def test_blocks_are_rounded_as_onnxruntime_does_unless_told_otherwise(
    level: str | None, rounds: bool, turned: bool
) -> None:
    """It rounds for blocks along the first axis; what is turned stays as it is."""
    problem = Problem(4, 256, 256, 32, by_column=turned, signed=True)
    matrix = problem.matrix
    weights = {"w": matrix.codes.view(np.int8), "s": matrix.scales}
    nodes = [
        node("DequantizeLinear", "w s", "d", axis=int(turned), block_size=32),
        node("Gemm", "x d", "y", transB=int(turned)),
    ]
    proto = model(nodes, [value("x", FLOAT, [None] * 2)], [value("y", FLOAT, [None] * 2)], weights)
    stored = proto.graph.initializer[0]
    stored.data_type, stored.dims[:] = onnx.TensorProto.INT4, (256, 256)
    options = tenonnx.SessionOptions()
    if level is not None:
        options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", level)
    x = np.random.default_rng(0).standard_normal((2, 256)).astype(np.float32)
    (y,) = tenonnx.InferenceSession(proto.SerializeToString(), options).run(None, {"x": x})
    error = np.abs(y - x.astype(np.float64) @ problem.dense)
    assert np.all(error <= problem.limit(x.astype(np.float64), "int8"))
    assert (error > problem.limit(x.astype(np.float64), "float32")).any() == rounds
