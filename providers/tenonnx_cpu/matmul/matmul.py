"""MatMul and Gemm on the CPU provider's own kernels."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tenonnx.by_name import cacheable
from tenonnx_cpu.buffers import contiguous
from tenonnx_cpu.capture.capturable import Capturable
from tenonnx_cpu.fuse import WIDENED, Fused, Scope, fusion
from tenonnx_cpu.kernel_selection import Call, NDArray, Site, specialize
from tenonnx_cpu.matmul.affine import widening
from tenonnx_cpu.matmul.product import F32, Epilogue, kind_of, product, product_launch, request
from tenonnx_cpu.matmul.wide import MULTIPLY_WIDE, WIDE_CODES, multiplied_wide

if TYPE_CHECKING:
    import onnx_ir as ir


@specialize("MatMul")
def matmul(site: Site, plain: Call) -> Call | None:
    """Products of float32, of 16-bit floats whose B is widened in the cache, and of wide types."""
    if site.dtype(0) in WIDE_CODES:
        MULTIPLY_WIDE.request()
        return Capturable(functools.partial(multiplied_wide, site.threads, plain))
    weight = site.constant(1)
    if weight is not None and not kind_of(weight.dtype):
        return None
    request("f32" if weight is None else kind_of(weight.dtype))
    return _matmul_call(site, plain)


def _matmul_call(site: Site, plain: Call) -> Capturable:
    return Capturable(functools.partial(_multiplied, site.threads, plain))


@cacheable
def _multiplied(threads: int, plain: Call, a: NDArray, b: NDArray) -> Any:
    if a.dtype == F32:
        made = product_launch(a, b, threads)
        return plain(a, b) if made is None else made
    return _narrow(a, b, threads, plain)


def _narrow(a: NDArray, b: NDArray, threads: int, plain: Call) -> Any:
    """Multiply 16-bit floats as float32; only A and the result are ever copied."""
    if a.dtype != b.dtype or not kind_of(a.dtype):
        return plain(a, b)
    result = product(a.astype(np.float32), b, threads)
    return plain(a, b) if result is None else result.astype(a.dtype)


@specialize("Gemm")
def gemm(site: Site, plain: Call) -> Call | None:
    """Gemm in float32 with one bias per column, or one per element."""
    weight = site.constant(1)
    if (site.node.version or 1) < 7 or (weight is not None and weight.dtype != F32):
        return None
    request("f32")
    return _gemm_call(site, plain)


def _gemm_call(site: Site, plain: Call) -> Capturable:
    call = GemmCall(
        transposes_a=bool(site.attribute("transA", 0)),
        transposes_b=bool(site.attribute("transB", 0)),
        beta=site.attribute("beta", 1.0),
        epilogue=Epilogue(alpha=site.attribute("alpha", 1.0)),
        threads=site.threads,
        plain=plain,
    )
    return Capturable(call)


@cacheable
@dataclass(frozen=True, eq=False)
class GemmCall:
    """Gemm: ``alpha * A @ B + beta * C``.

    Attributes:
        transposes_a: Whether A is transposed.
        transposes_b: Whether B is.
        beta: The factor of C.
        epilogue: The factor of the product.
        threads: How many to use at most.
        plain: Computes the same from the same arguments, of any dtype.
    """

    transposes_a: bool
    transposes_b: bool
    beta: float
    epilogue: Epilogue
    threads: int
    plain: Call

    def __call__(self, a: NDArray, b: NDArray, c: NDArray | None = None) -> Any:
        """Return a launch, or the result."""
        if a.dtype != F32 or a.ndim != 2 or b.ndim != 2:
            return self.plain(a, b, c)
        left, right = a.T if self.transposes_a else a, b.T if self.transposes_b else b
        bias, residual = addend(c, self.beta, (left.shape[0], right.shape[1]))
        made = product_launch(left, right, self.threads, bias, residual, self.epilogue)
        return self.plain(a, b, c) if made is None else made


@fusion("MatMul", "Gemm", priority=WIDENED)
def fuse_widened(node: ir.Node, scope: Scope) -> Fused | None:
    """Take a product with the Cast that makes its constant B float32, to widen B in the cache."""
    cast, weight = widening(node, scope)
    if cast is None or weight is None or (node.version or 1) < 7:
        return None
    request(kind_of(weight.dtype))
    inputs = (node.inputs[0], cast.inputs[0], *node.inputs[2:])
    make = _matmul_call if node.op_type == "MatMul" else _gemm_call
    return scope.fused((node,), inputs, lambda plain: make(scope.site(node), plain), (cast,))


def addend(
    c: NDArray | None, beta: float, shape: tuple[int, int]
) -> tuple[NDArray | None, NDArray | None]:
    """Return Gemm's C, scaled, as a bias per column or a residual of the result's shape."""
    if c is None or beta == 0:
        return None, None
    if beta != 1:
        c = (c * beta).astype(c.dtype)
    if c.shape[-1:] == shape[1:] and c.size == shape[1]:
        return c.reshape(-1), None
    return None, contiguous(np.broadcast_to(c, shape))
