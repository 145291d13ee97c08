"""Products by cuBLAS: what it is given, on a cuBLAS of numpy's that reads memory as it would."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import strict
from kernel_calls import chosen, close
from numpy.lib.stride_tricks import as_strided

from tenonnx_cuda.matmul.cublas import CUDA_DATA_TYPES, Products

DTYPES = {number: dtype for dtype, number in CUDA_DATA_TYPES.items()}


def matrices(address: int, dtype: Any, shape: tuple[int, ...], steps: tuple[int, ...]) -> Any:
    """Return memory at an address as matrices by columns."""
    span = sum((n - 1) * step for n, step in zip(shape, steps, strict=True)) + 1
    interface = {"version": 3, "data": (address, False), "shape": (span * dtype.itemsize,),
                 "typestr": "|u1"}  # fmt: skip
    flat = np.asarray(type("At", (), {"__array_interface__": interface})()).view(dtype)
    return as_strided(flat, shape, [dtype.itemsize * step for step in steps])


class Library:
    """cuBLAS, as far as it is used.

    Attributes:
        calls: How often.
    """

    def __init__(self) -> None:
        self.calls = 0
        self.cublasSetStream_v2 = lambda handle, stream: int((handle, stream) != ("handle", 7))
        self.cublasGemmStridedBatchedEx = lambda *given: self._product(*given)

    def _product(
        self, handle: Any, op_a: int, op_b: int, m: int, n: int, k: int, alpha: Any,
        a: int, kind: int, lda: int, apart_a: int, b: int, kind_b: int, ldb: int, apart_b: int,
        beta: Any, c: int, kind_c: int, ldc: int, apart_c: int, count: int, sums: int, way: int,
    ) -> int:  # fmt: skip
        assert (handle, way) == ("handle", -1)
        assert kind == kind_b
        assert kind_c in (kind, 0)
        dtype, result = DTYPES[kind], DTYPES[kind_c]
        assert sums == (70 if dtype == np.float64 else 68)
        self.calls += 1
        assert lda >= (k if op_a else m)
        assert ldb >= (n if op_b else k)
        read_a = (count, m, k), (apart_a, lda if op_a else 1, 1 if op_a else lda)
        read_b = (count, k, n), (apart_b, ldb if op_b else 1, 1 if op_b else ldb)
        left, right = matrices(a, dtype, *read_a), matrices(b, dtype, *read_b)
        y = matrices(c, result, (count, m, n), (apart_c, 1, ldc))
        product = alpha._obj.value * (left.astype(np.float64) @ right.astype(np.float64))
        if beta._obj.value:
            product += beta._obj.value * y.astype(np.float64)
        y[...] = product.astype(result)
        return 0


def products(library: Any) -> Products:
    def device() -> Any:
        return SimpleNamespace(cublas_handle="handle")

    stream = SimpleNamespace(ptr=7)
    cuda = SimpleNamespace(Device=device, get_current_stream=lambda: stream)
    names = ("empty", "matmul", "broadcast_to", "ascontiguousarray")
    cupy = SimpleNamespace(cuda=cuda, **{name: getattr(strict.xp, name) for name in names})
    return Products(cupy, library)


def multiply(a: Any, b: Any, library: Any) -> Any:
    return products(library).matmul(strict.StrictArray(a), strict.StrictArray(b)).held


def draw(seed: int, *shape: int) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


PAIRS = {
    "a vector by a matrix": (draw(0, 7), draw(1, 7, 3)),
    "a vector by matrices": (draw(0, 7), draw(1, 4, 7, 3)),
    "matrices by a vector": (draw(0, 4, 5, 7), draw(1, 7)),
    "vectors": (draw(0, 7), draw(1, 7)),
    "matrices": (draw(0, 5, 7), draw(1, 7, 3)),
    "one row": (draw(0, 1, 7), draw(1, 7, 3)),
    "one column": (draw(0, 5, 7), draw(1, 7, 1)),
    "one number": (draw(0, 4, 1), draw(1, 1, 1)),
    "transposed": (draw(0, 7, 5).T, draw(1, 3, 7).T),
    "a cut": (draw(0, 5, 20)[:, 3:10], draw(1, 9, 8)[1:8, 2:5]),
    "every other column": (draw(0, 5, 14)[:, ::2], draw(1, 7, 3)),
    "backwards": (draw(0, 5, 7)[::-1], draw(1, 7, 3)[:, ::-1]),
    "repeated": (np.broadcast_to(draw(0, 7), (5, 7)), draw(1, 7, 3)),
    "rows by a matrix": (draw(0, 2, 4, 5, 7), draw(1, 7, 3)),
    "heads": (draw(0, 2, 5, 4, 7).swapaxes(1, 2), draw(1, 2, 3, 4, 7).transpose(0, 2, 3, 1)),
    "one for all": (draw(0, 1, 5, 7), draw(1, 6, 7, 3)),
    "a matrix by many": (draw(0, 5, 7), draw(1, 6, 7, 3)),
    "some for all": (draw(0, 2, 1, 5, 7), draw(1, 3, 7, 4)),
    "every other": (draw(0, 6, 5, 7)[::2], draw(1, 3, 7, 4)),
    "turned over": (draw(0, 3, 5, 7)[::-1], draw(1, 3, 7, 4)),
    "many of one": (np.broadcast_to(draw(0, 5, 7), (3, 5, 7)), draw(1, 3, 7, 4)),
}


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16])
def test_products_are_numpys(name: str, dtype: Any) -> None:
    wide = PAIRS[name]
    a, b = (x if dtype == np.float32 else as_type(x, dtype) for x in wide)
    y = multiply(a, b, library := Library())
    assert library.calls == 1
    assert y.dtype == dtype
    expected = np.matmul(a.astype(np.float64), b.astype(np.float64))
    limit = {2: 2e-3, 4: 1e-6, 8: 1e-12}[np.dtype(dtype).itemsize] * (
        8 if y.dtype.kind == "V" else 1
    )
    np.testing.assert_allclose(y.astype(np.float64), expected, rtol=limit, atol=limit)


def as_type(x: Any, dtype: Any) -> Any:
    """Return the same numbers with the same order of strides, where that can be."""
    return x.astype(dtype, order="K")


def test_a_product_is_added_to_columns_of_a_matrix() -> None:
    a, b, y = draw(0, 5, 7), draw(1, 7, 3), draw(2, 5, 9)
    expected = y.copy()
    expected[:, 2:5] = 0.5 * a @ b + 2 * y[:, 2:5]
    given = (strict.StrictArray(x) for x in (a, b, y[:, 2:5]))
    products(Library()).into(*given, 0.5, 2.0)
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-5)


def test_what_is_no_product_of_floats_is_left_alone() -> None:
    a, b = np.arange(6).reshape(2, 3), np.arange(12).reshape(3, 4)
    library = Library()
    np.testing.assert_array_equal(multiply(a, b, library), a @ b)
    assert multiply(draw(0, 0, 3), draw(1, 3, 4), library).shape == (0, 4)
    assert library.calls == 0


def test_matrices_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="do not fit each other"):
        multiply(draw(0, 2, 3), draw(1, 4, 3), Library())


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_factors_of_16_bits_are_not_widened(dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = draw(0, 2, 5, 300).astype(dtype), draw(1, 300, 4).astype(dtype)
    monkeypatch.setattr(strict.StrictArray, "astype", None, raising=False)
    y = chosen("MatMul", 13)(a, b)
    expected = np.matmul(a.astype(np.float64), b.astype(np.float64))
    close(y, expected, dtype)


def test_a_status_is_an_error() -> None:
    library = Library()
    library.cublasGemmStridedBatchedEx = lambda *_: 14
    with pytest.raises(RuntimeError, match="cuBLAS has status 14"):
        multiply(draw(0, 2, 3), draw(1, 3, 4), library)
