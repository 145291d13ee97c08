"""Products of dequantized bytes as products of the bytes, rounded to bytes again if they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from tenonnx.planning.anchors import BROADCASTING, Part, Walk
from tenonnx_cpu.capture.capturable import Capturable
from tenonnx_cpu.capture.launch import Launch
from tenonnx_cpu.fuse import QUANTIZED, Fused, Scope, fusion
from tenonnx_cpu.int8.product import (
    GEMM,
    NO_NUMBERS,
    Finish,
    byte_launch,
    column_zeros,
    narrowed,
    widened,
)
from tenonnx_cpu.int8.quantized_values import (
    ALL,
    BYTES,
    LIMITS,
    ROUNDED,
    QuantizedType,
    dequantized,
    quantized_type_of,
)
from tenonnx_cpu.kernel_selection import Call, NDArray
from tenonnx_cpu.matmul.product import F32
from tenonnx_cpu.quantized.dequantized import quantized_weights

if TYPE_CHECKING:
    import onnx_ir as ir


def _row(node: ir.Node, walk: Walk[Scope]) -> tuple[NDArray, ir.Node | None] | str:
    """Reads the constant that is added to every row, and its DequantizeLinear."""
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


ROW = Part("bias", ("Add",), _row, since=BROADCASTING)


def finish_of(walk: Walk[Scope], unit: NDArray) -> Finish:
    """Returns what becomes of sums in units of ``unit``, float64, one or one per column."""
    bias, _ = walk.found.get(ROW.name, (NO_NUMBERS, None))
    limits, code = walk.found.get(LIMITS.name, ALL), walk.found.get(ROUNDED.name)
    if code is None:
        return Finish(F32, unit.astype(np.float32), bias, low=limits[0], high=limits[1])
    low, high = code.between(limits)
    return Finish(
        code.dtype,
        (unit / code.step).astype(np.float32),
        (bias / np.float64(code.step)).astype(np.float32),
        low=low,
        high=high,
        zero=code.origin,
    )


@fusion("DequantizeMatMul", domain="ai.tenonnx", priority=QUANTIZED, takes=(ROW, LIMITS, ROUNDED))
def fuse_weights(node: ir.Node, scope: Scope) -> Fused | None:
    """A product with a constant matrix of bytes."""
    x = dequantized(node.inputs[0], scope)
    code = None if x is None else quantized_type_of(x, scope)
    if x is None or code is None or not code.is_single or code.dtype not in BYTES:
        return None
    weights = quantized_weights(scope.site(node))
    if weights is None or weights.bits != 8 or weights.block < weights.depth:
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
    b, zeros, finish = widened(b, zeros, finish)
    product = _call(lambda a: (a, b), code, zeros, finish, scope.threads)

    def call(a: NDArray) -> Launch | NDArray | None:
        return narrowed(product(a), weights.columns)

    return _fused(walk, (x,), (x.inputs[0],), call)


@fusion("MatMul", priority=QUANTIZED, takes=(LIMITS, ROUNDED))
def fuse_matmul(node: ir.Node, scope: Scope) -> Fused | None:
    """A product of two dequantized tensors, as attention has them."""
    found = [source for value in node.inputs if (source := dequantized(value, scope)) is not None]
    codes = [code for source in found if (code := quantized_type_of(source, scope)) is not None]
    if len(codes) < 2 or not all(code.is_single and code.dtype in BYTES for code in codes):
        return None
    left, right = codes
    walk = scope.follow(node)
    finish = finish_of(walk, np.full(1, np.float64(left.step) * right.step))
    zeros = column_zeros(right.zero, np.empty((1, 1), right.dtype))
    assert zeros is not None, "one zero point fits any matrix"
    inputs = tuple(dict.fromkeys(source.inputs[0] for source in found))

    def both(a: NDArray, b: NDArray | None = None) -> tuple[NDArray, NDArray]:
        return a, a if b is None else b

    call = _call(both, left, zeros, finish, scope.threads)
    return _fused(walk, tuple(found), inputs, call)


def _call(
    operands: Callable[..., tuple[NDArray, NDArray]],
    code: QuantizedType,
    zeros: NDArray,
    finish: Finish,
    threads: int,
) -> Call:
    """Returns what computes a product from a fusion's inputs; ``None`` where it cannot."""
    origin = code.zero.reshape(1)

    def call(*given: NDArray) -> Launch | NDArray | None:
        a, b = operands(*given)
        return byte_launch(a, origin, b, zeros, threads, finish)

    return call


def _fused(
    walk: Walk[Scope], found: tuple[ir.Node, ...], inputs: tuple[ir.Value | None, ...], call: Call
) -> Fused:
    """Returns the fusion of a product, what feeds it and what follows."""
    _, source = walk.found.get(ROW.name, (None, None))
    GEMM.request()

    def make(plain: Call) -> Call:
        return Capturable(lambda *given: plain(*given) if (y := call(*given)) is None else y)

    sources = found if source is None else (*found, source)
    return walk.scope.fused(walk.nodes, inputs, make, sources)
