"""Products of dequantized bytes as products of the bytes, rounded to bytes again if they are."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tenonnx.by_name import cacheable
from tenonnx.planning.anchors import BROADCASTING_OPSET, Part, Walk
from tenonnx_cpu.buffers import frozen
from tenonnx_cpu.capture.capturable import Capturable
from tenonnx_cpu.capture.launch import Launch, fix
from tenonnx_cpu.fuse import QUANTIZED, Fused, Scope, fusion
from tenonnx_cpu.int8.product import (
    BYTE_GEMM,
    NO_NUMBERS,
    ByteFinish,
    byte_launch,
    column_zeros,
    readable,
)
from tenonnx_cpu.int8.quantized_values import (
    ALL,
    BYTE_DTYPES,
    LIMITS,
    ROUNDED,
    dequantized,
    quantized_type_of,
)
from tenonnx_cpu.kernel_selection import Call, NDArray
from tenonnx_cpu.matmul.product import F32
from tenonnx_cpu.quantized.dequantized import quantized_weights

if TYPE_CHECKING:
    import onnx_ir as ir


def _row(node: ir.Node, walk: Walk[Scope]) -> tuple[NDArray, ir.Node | None] | str:
    """Read the constant that is added to every row, and its DequantizeLinear."""
    scope, columns, value = walk.scope, walk.about, node.inputs[walk.beside(node)]
    source = dequantized(value, scope)
    if source is None:
        row = scope.site(node).constant(walk.beside(node))
    else:
        code = quantized_type_of(source, scope, np.dtype(np.int32))
        whole = scope.site(source).constant(0)
        if code is None or whole is None or whole.ndim != 1:
            return "it adds codes that are not known before"
        if any(numbers.size not in (1, columns) for numbers in (code.scale, code.zero)):
            return "it adds codes of other scales"
        row = (whole - code.zero.reshape(-1)).astype(np.float32) * code.scale.reshape(-1)
    if row is None or row.dtype != F32 or row.shape != (columns,):
        return "it adds no constant float32 for every column"
    return row, source


BIAS_PART = Part("bias", ("Add",), _row, since=BROADCASTING_OPSET)


def finish_of(walk: Walk[Scope], unit: NDArray) -> ByteFinish:
    """Return what becomes of sums in units of ``unit``, float64, one or one per column."""
    bias, _ = walk.found.get(BIAS_PART.name, (NO_NUMBERS, None))
    limits, code = walk.found.get(LIMITS.name, ALL), walk.found.get(ROUNDED.name)
    if code is None:
        factor = frozen(unit.astype(np.float32))
        return ByteFinish(F32, factor, bias, low=limits[0], high=limits[1])
    low, high = code.between(limits)
    return ByteFinish(
        code.dtype,
        frozen((unit / code.step).astype(np.float32)),
        frozen((bias / np.float64(code.step)).astype(np.float32)),
        low=low,
        high=high,
        zero=code.origin,
    )


@fusion(
    "DequantizeMatMul", domain="ai.tenonnx", priority=QUANTIZED, takes=(BIAS_PART, LIMITS, ROUNDED)
)
def fuse_weights(node: ir.Node, scope: Scope) -> Fused | None:
    """A product with a constant matrix of bytes."""
    x = dequantized(node.inputs[0], scope)
    code = None if x is None else quantized_type_of(x, scope)
    if x is None or code is None or not code.is_single or code.dtype not in BYTE_DTYPES:
        return None
    weights = quantized_weights(scope.site(node))
    if weights is None or weights.bits != 8 or weights.block < weights.depth:
        return None
    if not np.isfinite(weights.scales).all():  # infinity times a byte of 0 is NaN
        return None
    shape = (weights.columns, weights.depth)
    b = weights.codes.view(np.int8 if weights.signed else np.uint8)
    b = b.reshape(shape).T if weights.by_column else b.reshape(shape[::-1])
    zero = np.full(1, weights.zero)
    if weights.zeros is not None:
        zero = weights.zeros.view(b.dtype).reshape(-1).astype(np.int64)
    zeros = column_zeros(zero, b)
    if zeros is None:
        return None
    walk = scope.follow(node, weights.columns)
    finish = finish_of(walk, np.float64(code.step) * weights.scales.reshape(-1))
    product = ByteProduct(code.zero.reshape(1), fix(zeros), finish, scope.threads)
    return _fused(
        walk, (x,), (x.inputs[0],), functools.partial(_by_matrix, product, frozen(readable(b)))
    )


@cacheable
def _by_matrix(product: ByteProduct, b: NDArray, a: NDArray) -> Launch | None:
    return product(a, b)


@fusion("MatMul", priority=QUANTIZED, takes=(LIMITS, ROUNDED))
def fuse_matmul(node: ir.Node, scope: Scope) -> Fused | None:
    """A product of two dequantized tensors, as attention has them."""
    found = [source for value in node.inputs if (source := dequantized(value, scope)) is not None]
    codes = [code for source in found if (code := quantized_type_of(source, scope)) is not None]
    if len(codes) < 2 or not all(code.is_single and code.dtype in BYTE_DTYPES for code in codes):
        return None
    left, right = codes
    walk = scope.follow(node)
    finish = finish_of(walk, np.full(1, np.float64(left.step) * right.step))
    zeros = column_zeros(right.zero, np.empty((1, 1), right.dtype))
    assert zeros is not None, "one zero point fits any matrix"
    inputs = tuple(dict.fromkeys(source.inputs[0] for source in found))

    call = ByteProduct(left.zero.reshape(1), fix(zeros), finish, scope.threads)
    return _fused(walk, tuple(found), inputs, call)


@cacheable
@dataclass(frozen=True, eq=False)
class ByteProduct:
    """Multiplies matrices of bytes.

    Attributes:
        origin: The zero point of the left one.
        zeros: Those of the right one's columns.
        finish: The conversion of sums.
        threads: How many to use at most.
    """

    origin: NDArray
    zeros: NDArray
    finish: ByteFinish
    threads: int

    def __call__(self, a: NDArray, b: NDArray | None = None) -> Launch | None:
        """Return the product of two matrices, or of one with itself; ``None`` for numpy."""
        b = a if b is None else b
        return byte_launch(a, self.origin, b, self.zeros, self.threads, self.finish)


def _fused(
    walk: Walk[Scope], found: tuple[ir.Node, ...], inputs: tuple[ir.Value | None, ...], call: Call
) -> Fused:
    """Return the fusion of a product, what feeds it and what follows."""
    _, source = walk.found.get(BIAS_PART.name, (None, None))
    BYTE_GEMM.request()

    def make(plain: Call) -> Call:
        return Capturable(functools.partial(_or_plain, call, plain))

    sources = found if source is None else (*found, source)
    return walk.scope.fused(walk.nodes, inputs, make, sources)


@cacheable
def _or_plain(call: Call, plain: Call, *given: NDArray) -> Any:
    return plain(*given) if (made := call(*given)) is None else made
