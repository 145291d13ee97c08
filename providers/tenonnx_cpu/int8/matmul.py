"""Products of integers: MatMulInteger, QLinearMatMul, QGemm and those that give real numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tenonnx.planning.anchors import BROADCASTING, Part, Walk
from tenonnx_cpu.capture.capturable import Capturable, where_constant
from tenonnx_cpu.capture.launch import Launch, done, fix
from tenonnx_cpu.fuse import QUANTIZED, Fused, Scope, fusion
from tenonnx_cpu.int8.product import GEMM, NO_WORDS, Finish, byte_launch, byte_product, column_zeros
from tenonnx_cpu.int8.quantized_values import ALL, BYTES, LIMITS, SCALED
from tenonnx_cpu.int8.quantizing import BY_RANGE, dynamic_quantize
from tenonnx_cpu.kernel_selection import Call, NDArray, Site, specialize
from tenonnx_cpu.matmul.product import F32

if TYPE_CHECKING:
    import onnx_ir as ir

CONTRIB = "com.microsoft"
NO_ORIGIN = np.zeros(1, np.uint8)


def _zeros_of(
    site: Site, b: int, zero: int, turned: bool = False
) -> Callable[[NDArray | None, NDArray], Any]:
    """Returns ``column_zeros`` for two inputs of a node, computed now if they are constants."""
    matrix, given = site.constant(b), site.constant(zero)
    inputs = site.node.inputs
    absent = zero >= len(inputs) or inputs[zero] is None
    if matrix is None or (given is None and not absent):
        return column_zeros
    known = column_zeros(given, matrix.T if turned else matrix)
    return lambda _, __: known


def _origin(a: NDArray, zero: NDArray | None) -> NDArray | None:
    """Returns A's only zero point; ``None`` if every row has its own, or it is of another type."""
    if zero is None:
        return NO_ORIGIN
    return zero.reshape(1) if zero.size == 1 and zero.dtype == a.dtype else None


@specialize("MatMulInteger")
def matmul_integer(site: Site, plain: Call) -> Call | None:
    """Sums in int32."""
    GEMM.request()
    threads, zeros_of = site.threads, _zeros_of(site, 1, 3)

    def call(
        a: NDArray, b: NDArray, a_zero: NDArray | None = None, b_zero: NDArray | None = None
    ) -> Any:
        origin, zeros = _origin(a, a_zero), zeros_of(b_zero, b)
        if origin is not None and zeros is not None:
            made = byte_launch(a, origin, b, zeros, threads)
            if made is not None:
                return made
        return plain(a, b, a_zero, b_zero)

    return Capturable(call)


def _by_column(scale: NDArray, columns: int) -> NDArray | None:
    """Returns one float32, or one for every column; ``None`` if it is neither."""
    if scale.dtype != F32:
        return None
    if scale.size == 1:
        return scale.reshape(1)
    fits = scale.size == columns and scale.shape[-1] == columns
    return np.ascontiguousarray(scale.reshape(-1)) if fits else None


def _summand(bias: NDArray | None, columns: int) -> NDArray | None:
    """Returns a bias that every row has in common; an empty one for none."""
    if bias is None:
        return np.empty(0, np.float32)
    if bias.dtype != F32 or bias.size != columns or bias.shape[-1] != columns:
        return None
    return np.ascontiguousarray(bias.reshape(-1))


def _real(
    a: NDArray,
    a_zero: NDArray | None,
    b: NDArray,
    zeros: NDArray | None,
    scale: NDArray,
    bias: NDArray | None,
    threads: int,
    limits: tuple[float, float] = ALL,
) -> Launch | NDArray | None:
    """Returns what computes ``sum * scale + bias`` between limits, as ``byte_launch`` does."""
    columns = b.shape[-1]
    origin, factor = _origin(a, a_zero), _by_column(scale, columns)
    summand = _summand(bias, columns)
    if origin is None or zeros is None or factor is None or summand is None:
        return None
    finish = Finish(F32, factor, summand, low=limits[0], high=limits[1])
    return byte_launch(a, origin, b, zeros, threads, finish)


@specialize("MatMulIntegerToFloat", domain=CONTRIB)
def matmul_integer_to_float(site: Site, plain: Call) -> Call | None:
    """Sums times both scales, and a bias."""
    GEMM.request()
    threads, zeros_of = site.threads, _zeros_of(site, 1, 5)
    scales = site.constant(2), site.constant(3)
    known = None if scales[0] is None or scales[1] is None else fix(scales[0] * scales[1])

    def call(a: NDArray, b: NDArray, a_scale: NDArray, b_scale: NDArray, *rest: Any) -> Any:
        a_zero, b_zero, bias = (*rest, None, None, None)[:3]
        made = None
        if a_scale.size == 1 and a_scale.dtype == F32:
            scale = a_scale * b_scale if known is None else known
            made = _real(a, a_zero, b, zeros_of(b_zero, b), scale, bias, threads)
        return plain(a, b, a_scale, b_scale, *rest) if made is None else made

    return where_constant(site, (2, 3), call)


@specialize("DynamicQuantizeMatMul", domain=CONTRIB)
def dynamic_quantize_matmul(site: Site, plain: Call) -> Call | None:
    """The product of float32, rounded to bytes by its range, with a matrix of bytes."""
    GEMM.request()
    BY_RANGE.request()
    threads, zeros_of = site.threads, _zeros_of(site, 1, 3)

    def call(a: NDArray, b: NDArray, b_scale: NDArray, *rest: Any) -> Any:
        b_zero, bias = (*rest, None, None)[:2]
        launch = dynamic_quantize(a, threads)
        made = None if launch is None else done(launch._replace(otherwise=lambda: None))
        y = None
        if made is not None:
            codes, scale, zero = made
            zeros = zeros_of(b_zero, b)
            y = done(_real(codes, zero, b, zeros, scale * b_scale, bias, threads))
        return plain(a, b, b_scale, *rest) if y is None else y

    return call


def rounding(
    scale: NDArray, columns: int, zero: NDArray, extra: NDArray = NO_WORDS
) -> Finish | None:
    """Returns how sums become bytes: times ``scale``, one number or one for every column."""
    factor = _by_column(scale, columns)
    if factor is None or zero.size != 1 or zero.dtype not in BYTES:
        return None
    origin, limits = int(zero.reshape(())), np.iinfo(zero.dtype)
    return Finish(
        zero.dtype,
        factor,
        extra=extra,
        low=float(limits.min - origin),
        high=float(limits.max - origin),
        zero=origin,
    )


@specialize("QLinearMatMul")
@specialize("QLinearMatMul", domain=CONTRIB)
def qlinear_matmul(site: Site, plain: Call) -> Call | None:
    """The product as bytes."""
    GEMM.request()
    threads, zeros_of = site.threads, _zeros_of(site, 3, 5)

    def call(
        a: NDArray, a_scale: NDArray, a_zero: NDArray, b: NDArray, b_scale: NDArray,
        b_zero: NDArray, y_scale: NDArray, y_zero: NDArray,
    ) -> Any:  # fmt: skip
        origin, finish = _origin(a, a_zero), None
        zeros = zeros_of(b_zero, b)
        if a_scale.size == y_scale.size == 1:
            scale = a_scale.reshape(()) * b_scale / y_scale.reshape(())
            finish = rounding(np.asarray(scale), b.shape[-1], y_zero)
        if origin is not None and zeros is not None and finish is not None:
            y = byte_product(a, origin, b, zeros, threads, finish)
            if y is not None:
                return y
        return plain(a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero)

    return call


@specialize("QGemm", domain=CONTRIB)
def q_gemm(site: Site, plain: Call) -> Call | None:
    """The product and C, which counts in units of the sums', as bytes or as real numbers."""
    if site.attribute("transA", 0):
        return None
    GEMM.request()
    turned, alpha = bool(site.attribute("transB", 0)), np.float32(site.attribute("alpha", 1.0))
    threads, zeros_of = site.threads, _zeros_of(site, 3, 5, turned)

    def call(
        a: NDArray, a_scale: NDArray, a_zero: NDArray, b: NDArray, b_scale: NDArray,
        b_zero: NDArray, c: NDArray | None = None, y_scale: NDArray | None = None,
        y_zero: NDArray | None = None,
    ) -> Any:  # fmt: skip
        right = b.T if turned else b
        columns = right.shape[-1]
        origin, zeros = _origin(a, a_zero), zeros_of(b_zero, right)
        scale = np.asarray(b_scale * (a_scale.reshape(()) * alpha))
        extra = NO_WORDS if c is None else c.reshape(-1)
        finish = None
        if c is not None and (c.dtype != np.int32 or c.shape not in ((columns,), (1, columns))):
            pass
        elif y_scale is None:
            factor = _by_column(scale, columns)
            finish = None if factor is None else Finish(F32, factor, extra=extra)
        elif y_zero is not None:
            scale = np.asarray(scale / y_scale.reshape(()))
            finish = rounding(scale, columns, y_zero, np.ascontiguousarray(extra))
        if origin is not None and zeros is not None and finish is not None:
            y = byte_product(a, origin, right, zeros, threads, finish)
            if y is not None:
                return y
        return plain(a, a_scale, a_zero, b, b_scale, b_zero, c, y_scale, y_zero)

    return call


def _vector(node: ir.Node, walk: Walk[Scope]) -> NDArray | str:
    given = walk.scope.site(node).constant(walk.beside(node))
    if given is None or given.ndim != 1 or given.dtype != F32:
        return "it adds no constant vector of float32"
    return given


VECTOR = Part("bias", ("Add",), _vector, since=BROADCASTING)


@fusion("MatMulInteger", priority=QUANTIZED, takes=(*SCALED, VECTOR, LIMITS))
def fuse_scaled(node: ir.Node, scope: Scope) -> Fused | None:
    """MatMulInteger, a Cast to float32, a Mul with the scales, and a bias and limits if any."""
    walk = scope.follow(node)
    if not walk.is_whole:
        return None
    bias, limits = walk.found.get(VECTOR.name), walk.found.get(LIMITS.name, ALL)
    inputs = (*(*node.inputs, None, None)[:4], walk.found["scale"])
    every = tuple(dict.fromkeys(value for value in inputs if value is not None))
    plain = scope.fallback(walk.nodes, every, walk.value)
    GEMM.request()
    threads, zeros_of = scope.threads, _zeros_of(scope.site(node), 1, 3)

    def call(
        a: NDArray, b: NDArray, a_zero: NDArray | None, b_zero: NDArray | None, scale: NDArray
    ) -> Any:
        made = None
        if scale.ndim <= a.ndim:
            made = _real(a, a_zero, b, zeros_of(b_zero, b), scale, bias, threads, limits)
        if made is not None:
            return made
        given = zip(inputs, (a, b, a_zero, b_zero, scale), strict=True)
        return plain(*dict(pair for pair in given if pair[0] is not None).values())

    return Fused(walk.nodes, inputs, (walk.value,), Capturable(call))
