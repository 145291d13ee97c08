"""Products of integers: MatMulInteger, QLinearMatMul, QGemm and those that give real numbers."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from tenonnx.by_name import cacheable
from tenonnx.planning.anchors import BROADCASTING_OPSET, Part, Walk
from tenonnx_cpu.buffers import frozen
from tenonnx_cpu.capture.capturable import Capturable, where_constant
from tenonnx_cpu.capture.launch import Launch, done, fix
from tenonnx_cpu.fuse import QUANTIZED, Fused, Scope, fusion
from tenonnx_cpu.int8.product import (
    BYTE_GEMM,
    NO_WORDS,
    PLAIN_SUMS,
    ByteFinish,
    byte_launch,
    column_zeros,
)
from tenonnx_cpu.int8.quantized_values import ALL, BYTE_DTYPES, LIMITS, SCALED_PARTS
from tenonnx_cpu.int8.quantizing import BY_RANGE, dynamic_quantize
from tenonnx_cpu.kernel_selection import Call, NDArray, Site, specialize
from tenonnx_cpu.matmul.product import F32

if TYPE_CHECKING:
    import onnx_ir as ir

CONTRIB = "com.microsoft"
NO_ORIGIN = frozen(np.zeros(1, np.uint8))

# Return `column_zeros` of a zero point and a matrix.
Zeros: TypeAlias = Callable[["NDArray | None", NDArray], Any]


def _zeros_of(site: Site, b: int, zero: int, turned: bool = False) -> Zeros:
    """Return ``column_zeros`` for two inputs of a node, evaluated now if they are constants."""
    matrix, given = site.constant(b), site.constant(zero)
    inputs = site.node.inputs
    absent = zero >= len(inputs) or inputs[zero] is None
    if matrix is None or (given is None and not absent):
        return column_zeros
    zeros = column_zeros(given, matrix.T if turned else matrix)
    return functools.partial(_known, None if zeros is None else fix(zeros))


@cacheable
def _known(zeros: NDArray | None, _: NDArray | None, __: NDArray) -> NDArray | None:
    return zeros


def _origin(a: NDArray, zero: NDArray | None) -> NDArray | None:
    """Return A's only zero point; ``None`` if every row has its own, or it is of another type."""
    if zero is None:
        return NO_ORIGIN
    return zero.reshape(1) if zero.size == 1 and zero.dtype == a.dtype else None


def _finished(
    zeros_of: Zeros, threads: int, a: NDArray, a_zero: NDArray | None, b: NDArray,
    b_zero: NDArray | None, finish: ByteFinish | None = PLAIN_SUMS,
) -> Launch | None:  # fmt: skip
    """Return what ``byte_launch`` does; ``None`` too if zero points do not fit, or no finish."""
    origin, zeros = _origin(a, a_zero), zeros_of(b_zero, b)
    if origin is None or zeros is None or finish is None:
        return None
    return byte_launch(a, origin, b, zeros, threads, finish)


@specialize("MatMulInteger")
def matmul_integer(site: Site, plain: Call) -> Call | None:
    """Sum in int32."""
    BYTE_GEMM.request()
    return Capturable(functools.partial(_summed, _zeros_of(site, 1, 3), site.threads, plain))


@cacheable
def _summed(
    zeros_of: Zeros, threads: int, plain: Call, a: NDArray, b: NDArray,
    a_zero: NDArray | None = None, b_zero: NDArray | None = None,
) -> Any:  # fmt: skip
    made = _finished(zeros_of, threads, a, a_zero, b, b_zero)
    return plain(a, b, a_zero, b_zero) if made is None else made


def _by_column(scale: NDArray, columns: int) -> NDArray | None:
    """Return one float32, or one for every column; ``None`` if it is neither."""
    if scale.dtype != F32:
        return None
    if scale.size == 1:
        return scale.reshape(1)
    fits = scale.size == columns and scale.shape[-1] == columns
    return np.ascontiguousarray(scale.reshape(-1)) if fits else None


def _summand(bias: NDArray | None, columns: int) -> NDArray | None:
    """Return a bias that every row has in common; an empty one for none."""
    if bias is None:
        return np.empty(0, np.float32)
    if bias.dtype != F32 or bias.size != columns or bias.shape[-1] != columns:
        return None
    return np.ascontiguousarray(bias.reshape(-1))


def _real(
    columns: int, scale: NDArray, bias: NDArray | None, limits: tuple[float, float] = ALL
) -> ByteFinish | None:
    """Return ``sum * scale + bias`` between limits; ``None`` if they do not fit the columns."""
    factor, summand = _by_column(scale, columns), _summand(bias, columns)
    if factor is None or summand is None:
        return None
    return ByteFinish(F32, factor, summand, low=limits[0], high=limits[1])


@specialize("MatMulIntegerToFloat", domain=CONTRIB)
def matmul_integer_to_float(site: Site, plain: Call) -> Call | None:
    """Sum times both scales, and a bias."""
    BYTE_GEMM.request()
    scales = site.constant(2), site.constant(3)
    known = None if scales[0] is None or scales[1] is None else fix(scales[0] * scales[1])
    call = RealProduct(_zeros_of(site, 1, 5), known, site.threads, plain)
    return where_constant(site, (2, 3), call)


@cacheable
@dataclass(frozen=True, eq=False)
class RealProduct:
    """Multiplies matrices of integers, and sums by scales.

    Attributes:
        zeros_of: Returns the zero points of B's columns.
        scale: The product of both scales, if it is known.
        threads: How many to use at most.
        plain: Computes the same from the same inputs.
    """

    zeros_of: Zeros
    scale: NDArray | None
    threads: int
    plain: Call

    def __call__(
        self, a: NDArray, b: NDArray, a_scale: NDArray, b_scale: NDArray, *rest: Any
    ) -> Any:
        """Return a launch, or the result."""
        a_zero, b_zero, bias = (*rest, None, None, None)[:3]
        made = None
        if a_scale.size == 1 and a_scale.dtype == F32:
            scale = a_scale * b_scale if self.scale is None else self.scale
            finish = _real(b.shape[-1], scale, bias)
            made = _finished(self.zeros_of, self.threads, a, a_zero, b, b_zero, finish)
        return self.plain(a, b, a_scale, b_scale, *rest) if made is None else made


@specialize("DynamicQuantizeMatMul", domain=CONTRIB)
def dynamic_quantize_matmul(site: Site, plain: Call) -> Call | None:
    """The product of float32, rounded to bytes by its range, with a matrix of bytes."""
    BYTE_GEMM.request()
    BY_RANGE.request()
    return functools.partial(_quantized, _zeros_of(site, 1, 3), site.threads, plain)


@cacheable
def _quantized(
    zeros_of: Zeros, threads: int, plain: Call, a: NDArray, b: NDArray, b_scale: NDArray, *rest: Any
) -> Any:
    b_zero, bias = (*rest, None, None)[:2]
    launch = dynamic_quantize(a, threads)
    made = None if launch is None else done(launch._replace(otherwise=_nothing))
    y = None
    if made is not None:
        codes, scale, zero = made
        finish = _real(b.shape[-1], scale * b_scale, bias)
        y = done(_finished(zeros_of, threads, codes, zero, b, b_zero, finish))
    return plain(a, b, b_scale, *rest) if y is None else y


def _nothing() -> None:
    """Stand for the results of numpy."""


def rounding(
    scale: NDArray, columns: int, zero: NDArray, extra: NDArray = NO_WORDS
) -> ByteFinish | None:
    """Return how sums become bytes: times ``scale``, one number or one for every column."""
    factor = _by_column(scale, columns)
    if factor is None or zero.size != 1 or zero.dtype not in BYTE_DTYPES:
        return None
    origin, limits = int(zero.reshape(())), np.iinfo(zero.dtype)
    return ByteFinish(
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
    BYTE_GEMM.request()
    return functools.partial(_product_of_bytes, _zeros_of(site, 3, 5), site.threads, plain)


@cacheable
def _product_of_bytes(
    zeros_of: Zeros, threads: int, plain: Call,
    a: NDArray, a_scale: NDArray, a_zero: NDArray, b: NDArray, b_scale: NDArray,
    b_zero: NDArray, y_scale: NDArray, y_zero: NDArray,
) -> Any:  # fmt: skip
    y = None
    if a_scale.size == y_scale.size == 1:
        scale = a_scale.reshape(()) * b_scale / y_scale.reshape(())
        finish = rounding(np.asarray(scale), b.shape[-1], y_zero)
        y = done(_finished(zeros_of, threads, a, a_zero, b, b_zero, finish))
    return plain(a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero) if y is None else y


@specialize("QGemm", domain=CONTRIB)
def q_gemm(site: Site, plain: Call) -> Call | None:
    """The product and C, which counts in units of the sums', as bytes or as real numbers."""
    if site.attribute("transA", 0):
        return None
    BYTE_GEMM.request()
    turned, alpha = bool(site.attribute("transB", 0)), np.float32(site.attribute("alpha", 1.0))
    return QGemmCall(turned, alpha, _zeros_of(site, 3, 5, turned), site.threads, plain)


@cacheable
@dataclass(frozen=True, eq=False)
class QGemmCall:
    """Multiplies matrices of bytes and adds C.

    Attributes:
        transposes_b: Whether B is transposed.
        alpha: The factor of the product.
        zeros_of: Returns the zero points of B's columns.
        threads: How many to use at most.
        plain: Computes the same from the same inputs.
    """

    transposes_b: bool
    alpha: np.float32
    zeros_of: Zeros
    threads: int
    plain: Call

    def __call__(
        self, a: NDArray, a_scale: NDArray, a_zero: NDArray, b: NDArray, b_scale: NDArray,
        b_zero: NDArray, c: NDArray | None = None, y_scale: NDArray | None = None,
        y_zero: NDArray | None = None,
    ) -> Any:  # fmt: skip
        """Return the result, as bytes or as real numbers."""
        right = b.T if self.transposes_b else b
        columns = right.shape[-1]
        scale = np.asarray(b_scale * (a_scale.reshape(()) * self.alpha))
        extra = NO_WORDS if c is None else c.reshape(-1)
        finish = None
        if c is not None and (c.dtype != np.int32 or c.shape not in ((columns,), (1, columns))):
            pass
        elif y_scale is None:
            factor = _by_column(scale, columns)
            finish = None if factor is None else ByteFinish(F32, factor, extra=extra)
        elif y_zero is not None:
            scale = np.asarray(scale / y_scale.reshape(()))
            finish = rounding(scale, columns, y_zero, np.ascontiguousarray(extra))
        y = done(_finished(self.zeros_of, self.threads, a, a_zero, right, b_zero, finish))
        if y is not None:
            return y
        return self.plain(a, a_scale, a_zero, b, b_scale, b_zero, c, y_scale, y_zero)


def _vector(node: ir.Node, walk: Walk[Scope]) -> NDArray | str:
    given = walk.scope.site(node).constant(walk.beside(node))
    if given is None or given.ndim != 1 or given.dtype != F32:
        return "it adds no constant vector of float32"
    return given


BIAS_VECTOR = Part("bias", ("Add",), _vector, since=BROADCASTING_OPSET)


@fusion("MatMulInteger", priority=QUANTIZED, takes=(*SCALED_PARTS, BIAS_VECTOR, LIMITS))
def fuse_scaled(node: ir.Node, scope: Scope) -> Fused | None:
    """MatMulInteger, a Cast to float32, a Mul with the scales, and a bias and limits if any."""
    walk = scope.follow(node)
    if not walk.is_whole:
        return None
    bias, limits = walk.found.get(BIAS_VECTOR.name), walk.found.get(LIMITS.name, ALL)
    inputs = (*(*node.inputs, None, None)[:4], walk.found["scale"])
    every = tuple(dict.fromkeys(value for value in inputs if value is not None))
    plain = scope.fallback(walk.nodes, every, walk.value)
    BYTE_GEMM.request()
    places = tuple(inputs.index(value) for value in every)
    zeros_of = _zeros_of(scope.site(node), 1, 3)
    call = ScaledProduct(zeros_of, bias, limits, places, scope.threads, plain)
    return Fused(walk.nodes, inputs, (walk.value,), Capturable(call))


@cacheable
@dataclass(frozen=True, eq=False)
class ScaledProduct:
    """Multiplies matrices of integers, and sums by scales; adds a bias.

    Attributes:
        zeros_of: Returns the zero points of B's columns.
        bias: One number for every column, if there is one.
        limits: The least and the greatest result.
        places: The inputs that ``plain`` takes, each value once.
        threads: How many to use at most.
        plain: Computes the same.
    """

    zeros_of: Zeros
    bias: NDArray | None
    limits: tuple[float, float]
    places: tuple[int, ...]
    threads: int
    plain: Call

    def __call__(
        self, a: NDArray, b: NDArray, a_zero: NDArray | None, b_zero: NDArray | None, scale: NDArray
    ) -> Any:
        """Return a launch, or the result."""
        made = None
        if scale.ndim <= a.ndim:
            finish = _real(b.shape[-1], scale, self.bias, self.limits)
            made = _finished(self.zeros_of, self.threads, a, a_zero, b, b_zero, finish)
        if made is not None:
            return made
        given = a, b, a_zero, b_zero, scale
        return self.plain(*(given[place] for place in self.places))
