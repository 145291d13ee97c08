"""Products of matrices, rounded once: cuBLAS sums 16-bit floats in float32."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from tenonnx.operators import Array
from tenonnx_array.linalg import product
from tenonnx_cuda.kernel_selection import Call, Site, Target, choose, same_element
from tenonnx_cuda.matmul.linear import Linear, linear_call, turns_of


@choose("MatMul")
def matmul(site: Site, plain: Call) -> Call:
    """MatMul; the array kernel would write float32 copies of factors of 16 bits first."""
    return functools.partial(_multiplied, site.target, plain)


def _multiplied(target: Target, plain: Call, A: Array, B: Array) -> Array:
    return plain(A, B) if same_element(A, B) is None else product(target.xp, A, B)


@choose("FusedMatMul", domain="com.microsoft")
def fused_matmul(site: Site, plain: Call) -> Call | None:
    """FusedMatMul: what a factor scales is not rounded before, as 16 bits might not hold it."""
    alpha = site.attribute("alpha", 1.0)
    batches = any(site.attribute(f"transBatch{name}", 0) for name in "AB")
    if site.target.xp.products is None or batches:
        return None
    return functools.partial(_scaled, site.target, plain, alpha, turns_of(site))


def _scaled(
    target: Target, plain: Call, alpha: float, turns: tuple[bool, bool], A: Array, B: Array
) -> Array:
    if same_element(A, B) is None or min(A.ndim, B.ndim) < 2 or not A.size * B.size:
        return plain(A, B)
    a, b = (x.swapaxes(-1, -2) if turn else x for x, turn in zip((A, B), turns, strict=True))
    made: Array = target.xp.products.scaled(a, b, alpha)
    return made


@choose("Gemm")
def gemm(site: Site, plain: Call) -> Call | None:
    """Gemm: C is cuBLASLt's bias or summand, and without cuBLASLt what cuBLAS adds to."""
    beta = site.attribute("beta", 1.0)
    if site.target.xp.products is None or site.version < 7:
        return None
    return GemmCall(linear_call(site, beta), plain)


@dataclass(frozen=True)
class GemmCall:
    """A call of Gemm.

    Attributes:
        one_call: The product and what is added by cuBLASLt; it may return ``None``.
        plain: Takes what cuBLAS does not.
    """

    one_call: Linear
    plain: Call

    def __call__(self, A: Array, B: Array, C: Array | None = None) -> Array:
        """Return ``alpha * A @ B + beta * C``."""
        one = self.one_call
        if same_element(A, B, C) is None or A.ndim != 2 or B.ndim != 2 or not A.size * B.size:
            return self.plain(A, B, C)
        y = one(A, B, *(() if C is None or one.beta == 0 else (C,)))
        a, b = (x.T if turn else x for x, turn in zip((A, B), one.turns, strict=True))
        return one.products.gemm(a, b, C, one.alpha, one.beta) if y is None else y
