"""Products of dequantized bytes as products of the bytes, rounded to bytes again if they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tenonnx.planning.fusion import beside
from tenonnx.planning.lower import is_constant
from tenonnx_cpu.fuse import QUANTIZED, Fused, Scope, fusion
from tenonnx_cpu.int8.product import GEMM, NO_NUMBERS, Finish, byte_product, column_zeros
from tenonnx_cpu.int8.quantized_values import (
    BYTES,
    QuantizedType,
    dequantized,
    quantized_type_of,
    quantizer,
    unread,
)
from tenonnx_cpu.kernel_selection import Call, NDArray, on_host
from tenonnx_cpu.matmul.product import F32
from tenonnx_cpu.quantized.dequantized import quantized_weights

if TYPE_CHECKING:
    import onnx_ir as ir


class Tail(NamedTuple):
    """What follows a product: a bias, a lower limit, and the code that its result is rounded to."""

    nodes: tuple[ir.Node, ...]
    sources: tuple[ir.Node, ...]
    bias: NDArray
    least: float
    code: QuantizedType | None

    def finish(self, unit: NDArray) -> Finish:
        """Returns what becomes of sums in units of ``unit``, float64, one or one per column."""
        if self.code is None:
            return Finish(F32, unit.astype(np.float32), self.bias)
        step, (low, high) = self.code.step, self.code.bounds
        if self.least > -np.inf:
            low = max(low, round(self.least / step))
        return Finish(
            self.code.dtype,
            (unit / step).astype(np.float32),
            (self.bias / np.float64(step)).astype(np.float32),
            low=float(low),
            high=float(high),
            zero=self.code.origin,
        )


def tail_of(value: ir.Value, columns: int, scope: Scope) -> Tail:
    """Returns what of the nodes behind a product can be computed with it."""
    nodes: list[ir.Node] = []
    sources: tuple[ir.Node, ...] = ()
    bias, least, end = NO_NUMBERS, -np.inf, value
    added = scope.follower(end, "Add")
    if added is not None:
        found = constant_row(added.inputs[beside(added, end)], columns, scope)
        if found is not None:
            bias, source = found
            sources = () if source is None else (source,)
            nodes.append(added)
            end = added.outputs[0]
    real = tuple(nodes)
    relu = scope.follower(end, "Relu")
    if relu is not None:
        nodes.append(relu)
        least, end = 0.0, relu.outputs[0]
    last = quantizer(end, scope)
    code = None if last is None else quantized_type_of(last, scope)
    if last is None or code is None or not code.is_single or code.dtype not in BYTES:
        return Tail(real, sources, bias, -np.inf, None)
    return Tail((*nodes, last), sources, bias, least, code)


def constant_row(
    value: ir.Value | None, columns: int, scope: Scope
) -> tuple[NDArray, ir.Node | None] | None:
    """Returns what is added to every row, a constant, and the DequantizeLinear that it is from."""
    if value is None:
        return None
    source = value.producer()
    if source is None:
        row = on_host(value.const_value) if is_constant(value) else None
    else:
        source = dequantized(value, scope)
        code = None if source is None else quantized_type_of(source, scope, np.dtype(np.int32))
        whole = None if source is None else scope.site(source).constant(0)
        if code is None or whole is None or whole.ndim != 1:
            return None
        if any(numbers.size not in (1, columns) for numbers in (code.scale, code.zero)):
            return None
        row = (whole - code.zero.reshape(-1)).astype(np.float32) * code.scale.reshape(-1)
    if row is None or row.dtype != F32 or row.shape != (columns,):
        return None
    return row, source


@fusion("DequantizeMatMul", domain="ai.tenonnx", priority=QUANTIZED)
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
    tail = tail_of(node.outputs[0], weights.columns, scope)
    finish = tail.finish(np.float64(code.step) * weights.scales.reshape(-1))
    inputs = (x.inputs[0],)
    call = _call(lambda a: (a, b), code, zeros, finish, scope.threads)
    return _fused(node, (x,), tail, inputs, call, scope)


@fusion("MatMul", priority=QUANTIZED)
def fuse_matmul(node: ir.Node, scope: Scope) -> Fused | None:
    """A product of two dequantized tensors, as attention has them."""
    found = [source for value in node.inputs if (source := dequantized(value, scope)) is not None]
    codes = [code for source in found if (code := quantized_type_of(source, scope)) is not None]
    if len(codes) < 2 or not all(code.is_single and code.dtype in BYTES for code in codes):
        return None
    left, right = codes
    tail = tail_of(node.outputs[0], -1, scope)
    finish = tail.finish(np.full(1, np.float64(left.step) * right.step))
    zeros = column_zeros(right.zero, np.empty((1, 1), right.dtype))
    assert zeros is not None, "one zero point fits any matrix"
    inputs = tuple(dict.fromkeys(source.inputs[0] for source in found))

    def both(a: NDArray, b: NDArray | None = None) -> tuple[NDArray, NDArray]:
        return a, a if b is None else b

    call = _call(both, left, zeros, finish, scope.threads)
    return _fused(node, tuple(found), tail, inputs, call, scope)


def _call(
    operands: Callable[..., tuple[NDArray, NDArray]],
    code: QuantizedType,
    zeros: NDArray,
    finish: Finish,
    threads: int,
) -> Call:
    """Returns what computes a product from a fusion's inputs; ``None`` where it cannot."""
    origin = code.zero.reshape(1)

    def call(*given: NDArray) -> NDArray | None:
        a, b = operands(*given)
        return byte_product(a, origin, b, zeros, threads, finish)

    return call


def _fused(
    node: ir.Node,
    found: tuple[ir.Node, ...],
    tail: Tail,
    inputs: tuple[ir.Value | None, ...],
    call: Call,
    scope: Scope,
) -> Fused:
    """Returns the fusion of a product, what feeds it and its tail."""
    nodes, sources = (node, *tail.nodes), (*found, *tail.sources)
    output = nodes[-1].outputs[0]
    plain = scope.fallback(tuple(dict.fromkeys((*sources, *nodes))), inputs, output)
    GEMM.request()

    def whole(*given: NDArray) -> Any:
        y = call(*given)
        return plain(*given) if y is None else y

    return Fused((*unread(sources, nodes, scope), *nodes), inputs, (output,), whole)
