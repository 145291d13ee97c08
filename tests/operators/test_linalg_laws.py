from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenonnx_array import TABLE

SIZES = st.integers(1, 6)
SEEDS = st.integers(0, 2**32 - 1)


def kernel(op: str, version: int = 28, outputs: int = 1, **attributes: Any) -> Any:
    found = TABLE.find("", op, version)
    assert found is not None
    return found.bind(np, attributes, outputs)


def peak(call: Any, *inputs: Any) -> int:
    call(*inputs)
    tracemalloc.start()
    try:
        call(*inputs)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


WEIGHT = np.ones((512, 768), np.float32)
ROW = np.ones((2, 768), np.float32)


@pytest.mark.parametrize(
    ("call", "inputs"),
    [
        (kernel("Gemm", transB=1), [ROW, WEIGHT, np.ones(512, np.float32)]),
        (kernel("MatMul"), [ROW, WEIGHT.T]),
        (kernel("MatMul"), [ROW[None], WEIGHT.T]),
        (kernel("Einsum", equation="bk,nk->bn"), [ROW, WEIGHT]),
        (
            kernel("Attention"),
            [np.ones((1, 8, 1, 64), np.float32), *[WEIGHT.reshape(1, 2, -1, 64)] * 2],
        ),
        (
            kernel("LSTM"),
            [np.ones((3, 2, 768), np.float32), WEIGHT[None], np.ones((1, 512, 128), np.float32)],
        ),
    ],
    ids=["Gemm", "MatMul", "MatMul-stack", "Einsum", "Attention", "LSTM"],
)
def test_weights_are_multiplied_where_they_lie(call: Any, inputs: list[Any]) -> None:
    assert peak(call, *inputs) < WEIGHT.nbytes / 4


WHOLE = [np.int8, np.uint8, np.int32, np.int64, np.uint64]
EQUATIONS = ["ij,jk->ik", "...ij, ...jk", "ij,jk,kl->li", "bij,bkj->bik", "ij,jk->k", "ij,kl->"]


@pytest.mark.parametrize("dtype", WHOLE)
@pytest.mark.parametrize("bits", [4, 11, 20, 31, 40])
@pytest.mark.parametrize("equation", EQUATIONS)
def test_products_of_integers_wrap(equation: str, bits: int, dtype: type) -> None:
    """Through floats or not: where BLAS's sums would not be exact, integers are multiplied."""
    rng = np.random.default_rng(bits)
    ranks = [len(part.replace("...", "xy").strip()) for part in equation.split("->")[0].split(",")]
    shapes = [(3, 24, 24, 24)[-rank:] if rank < 4 else (2, 3, 24, 24) for rank in ranks]
    drawn = [rng.integers(-(1 << bits), 1 << bits, shape).astype(dtype) for shape in shapes]
    exact = np.einsum(equation, *(x.astype(object) for x in drawn))
    wrapped = np.vectorize(lambda n: int(n) % 2**64, otypes=[np.uint64])(exact).astype(dtype)
    np.testing.assert_array_equal(kernel("Einsum", equation=equation)(*drawn), wrapped)
    if equation == "ij,jk->ik":
        y = kernel("MatMul")(*drawn)
        np.testing.assert_array_equal(y, wrapped)
        assert y.dtype == dtype


@given(SEEDS, SIZES, st.integers(1, 600), SIZES)
def test_matmul_integer_is_exact(seed: int, m: int, k: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    a = rng.integers(0, 256, (m, k)).astype(np.uint8)
    b = rng.integers(-128, 128, (k, n)).astype(np.int8)
    p, q = a[:, 0], b[0]
    exact = (a.astype(int) - p[:, None]) @ (b.astype(int) - q)
    np.testing.assert_array_equal(kernel("MatMulInteger")(a, b, p, q), exact)


@pytest.mark.parametrize("columns", [1, 3])
def test_the_largest_sums_of_bytes_are_exact(columns: int) -> None:
    """Of long rows, which are added up in parts; in stacks, and of convolutions."""
    a = np.full((2, columns, 2000), 255, np.uint8)
    b = np.full((2000, columns), -128, np.int8)
    low, high = np.zeros(columns, np.uint8), np.full(columns, 127, np.int8)
    expected = np.full((2, columns, columns), 2000 * 255 * -255)
    found = kernel("MatMulInteger")(a, b, low, high)
    assert found.dtype == np.int32
    np.testing.assert_array_equal(found, expected)
    x, w = a.reshape(2, 500, 4, columns), b.T.reshape(columns, 500, 4, 1)
    found = kernel("ConvInteger")(x, w, np.uint8(0), high)
    assert found.dtype == np.int32
    np.testing.assert_array_equal(found, np.full((2, columns, 1, columns), 2000 * 255 * -255))


def test_weights_of_bytes_are_widened_in_parts() -> None:
    weight = np.ones((4096, 256), np.int8)
    assert peak(kernel("MatMulInteger"), np.ones((2, 4096), np.uint8), weight) < weight.nbytes / 2


@given(SEEDS, st.sampled_from([3, 2, 21, 22, 5, 4]), st.integers(0, 1))
def test_what_was_dequantized_quantizes_to_itself(seed: int, to: int, axis: int) -> None:
    rng = np.random.default_rng(seed)
    scale = np.exp2(rng.integers(-5, 5, (4, 6)[axis])).astype(np.float32)
    x = rng.normal(0, 9, (4, 6)).astype(np.float32)
    codes = kernel("QuantizeLinear", axis=axis, output_dtype=to)(x, scale)
    values = kernel("DequantizeLinear", axis=axis)(codes, scale)
    again = kernel("QuantizeLinear", axis=axis, output_dtype=to)(values, scale)
    np.testing.assert_array_equal(again.astype(int), codes.astype(int))
    inside = np.abs(values - x) <= np.expand_dims(scale, 1 - axis) / 2
    limits = np.isin(codes.astype(int), [codes.astype(int).min(), codes.astype(int).max()])
    assert np.all(inside | limits)


@given(SEEDS, st.integers(1, 40), st.integers(0, 1), st.integers(0, 1))
def test_fourier_transforms_invert_each_other(
    seed: int, length: int, axis: int, onesided: int
) -> None:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(
        (length, 3, 1 if onesided else 2) if axis == 0 else (3, length, 1 if onesided else 2)
    )
    along, n = np.array(axis), np.array(length)
    spectrum = kernel("DFT", onesided=onesided)(x, n, along)
    back = kernel("DFT", onesided=onesided, inverse=1)(spectrum, n, along)
    np.testing.assert_allclose(back, x, atol=1e-12)


@given(SEEDS, st.integers(1, 4), st.integers(1, 5), st.integers(0, 5))
def test_causal_attention_continues_from_its_cache(
    seed: int, first: int, second: int, window: int
) -> None:
    rng = np.random.default_rng(seed)
    q = rng.standard_normal((2, 4, first + second, 3))
    k, v = rng.standard_normal((2, 2, 2, first + second, 3))
    call = kernel("Attention", 25, 3, is_causal=1, left_window_size=window)
    whole, *_ = call(q, k, v)
    start, keys, values, _ = call(q[:, :, :first], k[:, :, :first], v[:, :, :first])
    end, *_ = call(q[:, :, first:], k[:, :, first:], v[:, :, first:], None, keys, values)
    np.testing.assert_allclose(np.concatenate((start, end), 2), whole, rtol=1e-12)


@given(SEEDS, st.integers(1, 5), st.integers(0, 5), st.sampled_from(["RNN", "GRU", "LSTM"]))
def test_recurrence_continues_from_its_state(seed: int, first: int, second: int, op: str) -> None:
    rng = np.random.default_rng(seed)
    gates = {"RNN": 1, "GRU": 3, "LSTM": 4}[op]
    x = rng.standard_normal((first + second, 2, 3))
    weights = rng.standard_normal((1, gates * 2, 3)), rng.standard_normal((1, gates * 2, 2))
    call = kernel(op, 22, 2)
    whole, *last = call(x, *weights)
    start, *middle = call(x[:first], *weights)
    end, *final = call(x[first:], *weights, None, None, *middle)
    np.testing.assert_allclose(np.concatenate((start, end)), whole, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(final, last, rtol=1e-10, atol=1e-12)


ONE = np.zeros((1, 1, 1))
HEADS = np.zeros((1, 2, 1, 2))
GROUPS = {"q_num_heads": 1, "kv_num_heads": 1}


@pytest.mark.parametrize(
    ("op", "attributes", "inputs", "message"),
    [
        ("MatMul", {}, [WEIGHT, ROW], r"found shapes \(512, 768\) and \(2, 768\)"),
        ("Gemm", {}, [WEIGHT, WEIGHT.T, ROW], "broadcast"),
        ("Attention", {}, [np.zeros((1, 2, 6))] * 3, "number of heads to divide"),
        ("Attention", {}, [HEADS[:, [0, 1, 1]], HEADS, HEADS], "divide"),
        ("Attention", {}, [HEADS, HEADS, HEADS, None, HEADS], "together"),
        ("LSTM", {"direction": "sideways"}, [ONE] * 3, "forward, reverse"),
        ("LSTM", {"hidden_size": 7}, [ONE] * 3, "hidden_size 7"),
        ("RNN", {"activations": ("Gelu",)}, [ONE] * 3, "'Gelu'"),
        ("GRU", {"activations": ("Relu",)}, [ONE] * 3, "expected 2 activations"),
        ("LinearAttention", GROUPS, [ONE] * 3, "an input decay"),
        ("QuantizeLinear", {"axis": 0}, [WEIGHT, ROW[0]], "scale and zero point"),
        ("QuantizeLinear", {"axis": 2}, [WEIGHT, ROW[0]], r"axis in \[-2, 1\]"),
        ("QuantizeLinear", {"output_dtype": 2}, [ROW, np.float32(1), np.int8(0)], "output_dtype"),
        ("DFT", {}, [WEIGHT[..., None], None, np.array(2)], r"axis in \[-3, -2\]"),
        ("DFT", {"onesided": 1}, [np.zeros((1, 4, 2))], "real signal"),
        ("DFT", {}, [np.zeros((1, 4, 2)), np.array(2**60)], "GiB"),
        ("HannWindow", {}, [np.array(-1)], "dimensions of at least 0"),
        ("STFT", {}, [np.zeros((1, 4, 1)), np.array(1), ROW[0], np.array(3)], "window of shape"),
        ("NegativeLogLikelihoodLoss", {"reduction": "max"}, [ROW, np.zeros(2, int)], "'max'"),
    ],
)  # fmt: skip
def test_errors_say_what_was_expected(
    op: str, attributes: dict[str, Any], inputs: list[Any], message: str
) -> None:
    with pytest.raises((ValueError, MemoryError), match=message):
        kernel(op, **attributes)(*inputs)
