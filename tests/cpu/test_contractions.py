"""Einsum as products of matrices, and products of wide elements, are numpy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper
from running import require_kernels, session

from models import node
from tenonnx_cpu.matmul.einsum import contraction_of
from tenonnx_cpu.matmul.wide import MAX_WIDE_PRODUCTS, wide_launch

require_kernels()

SIZES = {"b": 2, "c": 3, "i": 5, "j": 7, "k": 4, "l": 6}

WIDE = (np.float64, np.int32, np.uint32, np.int64, np.uint64)


def drawn(dtype: Any, *shape: int) -> np.ndarray[Any, Any]:
    """Integers of the whole range, which wrap around."""
    rng = np.random.default_rng(shape)
    if np.dtype(dtype).kind == "f":
        return rng.standard_normal(shape).astype(dtype)
    ends = np.iinfo(dtype)
    return rng.integers(ends.min, ends.max, shape, dtype, endpoint=True)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.int64])
@pytest.mark.parametrize(
    "equation",
    ["ij,jk->ik", "bij,bkj->bik", "bij, bjk -> bki", "bcij,bckj->bcik", "bicj,bkcj->bcik",
     "ijk,jl->kli", "i,j->ij", "ij,ij->", "i,i->", "bi,bi->b", "bijk,jbl->bkli", "ij,jk->k"],
)  # fmt: skip
def test_einsum_is_numpys(equation: str, dtype: Any) -> None:
    terms = equation.partition("->")[0].replace(" ", "").split(",")
    arrays = [drawn(dtype, *(SIZES[axis] for axis in term)) for term in terms]
    expected = np.einsum(equation, *arrays)
    feeds = dict(zip("ab", arrays, strict=True))
    kinds = dict.fromkeys("aby", helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))
    made = session([node("Einsum", "a b", "y", equation=equation)], feeds, "y", kinds=kinds)
    for _ in range(3):
        (y,) = made.run(None, feeds)
        assert (y.dtype, y.shape) == (expected.dtype, expected.shape)
        if y.dtype.kind == "f":
            np.testing.assert_allclose(y, expected, 1e-5, 1e-5)
        else:
            np.testing.assert_array_equal(y, expected)


def test_large_contractions_of_doubles_are_blas() -> None:
    a, b = drawn(np.float64, 2, 70, 60), drawn(np.float64, 60, 2, 50)
    assert wide_launch(a, b.swapaxes(0, 1), 1) is None
    kinds = dict.fromkeys("aby", helper.np_dtype_to_tensor_dtype(a.dtype))
    feeds = {"a": a, "b": b}
    nodes = [node("Einsum", "a b", "y", equation="bij,jbk->bki")]
    (y,) = session(nodes, feeds, "y", kinds=kinds).run(None, feeds)
    np.testing.assert_allclose(y, np.einsum("bij,jbk->bki", a, b), 1e-10, 1e-10)


@pytest.mark.parametrize(
    "equation", ["ii,ij->ij", "ij->ji", "...ij,...jk->...ik", "ij,jk", "ij,k->i", "ij,jk->ikk"]
)
def test_other_equations_are_no_product(equation: str) -> None:
    assert contraction_of(equation) is None


@pytest.mark.parametrize("dtype", WIDE)
@pytest.mark.parametrize(
    "shapes", [((5, 7), (7, 3)), ((1, 40), (40, 33)), ((2, 1, 4, 9), (3, 9, 2)), ((6, 1), (1, 1))]
)
def test_wide_products_are_numpys(shapes: Any, dtype: Any) -> None:
    a, b = (drawn(dtype, *shape) for shape in shapes)
    for left in (a, np.asfortranarray(a), a[..., ::-1, :]):
        made = wide_launch(left, b, 2)
        assert made is not None
        made.run(*made.arguments)
        expected = np.matmul(left, b)
        if dtype == np.float64:
            np.testing.assert_allclose(made.result, expected, 1e-12, 1e-12)
        else:
            np.testing.assert_array_equal(made.result, expected)


def test_large_products_are_blas() -> None:
    a = np.ones((MAX_WIDE_PRODUCTS, 2))
    assert wide_launch(a, np.ones((2, 1)), 1) is None
