"""Products of matrices, rounded once: cuBLAS sums 16-bit floats in float32."""

from __future__ import annotations

from tenonnx.operators import Array
from tenonnx_array.linalg import product
from tenonnx_cuda.kernel_selection import Call, Site, choose, same_element
from tenonnx_cuda.matmul.linear import linear_call


@choose("MatMul")
def matmul(site: Site, plain: Call) -> Call:
    """MatMul; the array kernel would write float32 copies of factors of 16 bits first."""

    def call(A: Array, B: Array) -> Array:
        return plain(A, B) if same_element(A, B) is None else product(site.xp, A, B)

    return call


@choose("FusedMatMul", domain="com.microsoft")
def fused_matmul(site: Site, plain: Call) -> Call | None:
    """FusedMatMul: what a factor scales is not rounded before, as 16 bits might not hold it."""
    products, alpha = site.xp.products, site.attribute("alpha", 1.0)
    turns = [bool(site.attribute(name, 0)) for name in ("transA", "transB")]
    if products is None or any(site.attribute(f"transBatch{name}", 0) for name in "AB"):
        return None

    def call(A: Array, B: Array) -> Array:
        if same_element(A, B) is None or min(A.ndim, B.ndim) < 2 or not A.size * B.size:
            return plain(A, B)
        a, b = (x.swapaxes(-1, -2) if turn else x for x, turn in zip((A, B), turns, strict=True))
        return products.scaled(a, b, alpha)

    return call


@choose("Gemm")
def gemm(site: Site, plain: Call) -> Call | None:
    """Gemm: C is cuBLASLt's bias or summand, and without cuBLASLt what cuBLAS adds to."""
    products, beta = site.xp.products, site.attribute("beta", 1.0)
    one_call, alpha = linear_call(site, beta), site.attribute("alpha", 1.0)
    turns = [bool(site.attribute(name, 0)) for name in ("transA", "transB")]
    if products is None or site.version < 7:
        return None

    def call(A: Array, B: Array, C: Array | None = None) -> Array:
        if same_element(A, B, C) is None or A.ndim != 2 or B.ndim != 2 or not A.size * B.size:
            return plain(A, B, C)
        y = one_call(A, B, *(() if C is None or beta == 0 else (C,)))
        a, b = (x.T if turn else x for x, turn in zip((A, B), turns, strict=True))
        return products.gemm(a, b, C, alpha, beta) if y is None else y

    return call
