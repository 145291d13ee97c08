"""MaxPool and GlobalAveragePool between DequantizeLinear and QuantizeLinear."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tenonnx_cpu.buffers import empty
from tenonnx_cpu.conv.conv import Attributes
from tenonnx_cpu.fuse import Fused, Scope, fusion
from tenonnx_cpu.int8.codes import BYTES, Code, code_of, dequantized, quantizer, unread
from tenonnx_cpu.int8.conv_layout import bytes_layout
from tenonnx_cpu.jit.runtime import JitKernel
from tenonnx_cpu.products.product import floats
from tenonnx_cpu.specialise import Call, NDArray

if TYPE_CHECKING:
    import onnx_ir as ir

MAX_POOL, AVERAGE = (JitKernel("int8.between", name) for name in ("max_pool", "average"))
SERIAL = 1 << 16
"""Bytes up to which one thread is done before others have started."""

Make = Callable[[Sequence[Code], Code, float, Call], Call]


def between(node: ir.Node, count: int, scope: Scope, kernel: JitKernel, make: Make) -> Fused | None:
    """Fuses a node whose first ``count`` inputs are dequantised and whose result is quantised.

    Args:
        node: The node; a Relu may follow it.
        count: How many inputs.
        scope: Where it is.
        kernel: Is requested if all fits.
        make: From the inputs' codes, the result's, the least result and what computes the same
            from bytes, returns what to call.
    """
    sources = [dequantized(value, scope) for value in node.inputs[:count]]
    nodes, least = [node], -np.inf
    following = scope.reader(node.outputs[0])
    if following is not None and following.op_type == "Relu" and not following.domain:
        nodes.append(following)
        least = 0.0
    last = quantizer(nodes[-1].outputs[0], scope)
    if last is None:
        return None
    found = [source for source in sources if source is not None]
    codes = [code for source in found if (code := code_of(source, scope)) is not None]
    made = code_of(last, scope)
    if len(codes) < count or made is None:
        return None
    if not all(code.is_single and code.dtype in BYTES for code in (*codes, made)):
        return None
    nodes.append(last)
    inputs = tuple(source.inputs[0] for source in found)
    every = tuple(dict.fromkeys((*found, *nodes)))
    call = make(codes, made, least, scope.fallback(every, inputs, last.outputs[0]))
    kernel.request()
    return Fused((*unread(found, nodes, scope), *nodes), inputs, (last.outputs[0],), call)


def limits_of(code: Code, least: float) -> tuple[float, float]:
    """Returns the least and the greatest byte, from the zero point on, of numbers so large."""
    low, high = code.bounds
    return (max(low, round(least / code.step)) if least > -np.inf else low), high


@fusion("MaxPool", turn=-1)
def fuse_max_pool(node: ir.Node, scope: Scope) -> Fused | None:
    """The maximum of bytes, where they stand for the same numbers before and after."""
    if len(node.outputs) > 1 or scope.site(node).attribute("ceil_mode", 0):
        return None
    site = scope.site(node)
    kernel = tuple(site.attribute("kernel_shape", ()))
    attributes = Attributes.of(site)

    def make(codes: Sequence[Code], made: Code, least: float, plain: Call) -> Call:
        if not codes[0].same(made) or least == 0 or len(kernel) != 2:
            return plain

        def call(x: NDArray) -> Any:
            run = MAX_POOL.run
            if run is None or x.ndim != 4 or not x.flags.c_contiguous or x.dtype != made.dtype:
                return plain(x)
            channels = x.shape[0] * x.shape[1]
            windows = attributes.windows(x.shape, (1, x.shape[1], *kernel))
            if windows is None:
                return plain(x)
            cut = bytes_layout((1, 1, *windows.size), 1, 1, windows, 1, whole=True)
            y = empty((*x.shape[:2], *windows.output), made.dtype)
            threads = min(scope.threads, channels) if x.size > SERIAL else 1
            run(
                *flat(x, y), made.flip, cut.numbers, cut.offsets, cut.planes,
                floats(cut.floats * threads), threads,
            )  # fmt: skip
            return y

        return call

    return between(node, 1, scope, MAX_POOL, make)


@fusion("GlobalAveragePool", turn=-1)
def fuse_average(node: ir.Node, scope: Scope) -> Fused | None:
    """The mean of each channel of bytes."""

    def make(codes: Sequence[Code], made: Code, least: float, plain: Call) -> Call:
        (code,) = codes
        factor, limits = code.step / made.step, limits_of(made, least)

        def call(x: NDArray) -> Any:
            run = AVERAGE.run
            if run is None or not x.flags.c_contiguous or x.dtype != code.dtype or x.ndim < 3:
                return plain(x)
            y = np.empty((*x.shape[:2], *(1,) * (x.ndim - 2)), made.dtype)
            if not y.size or not x.size:
                return plain(x)
            run(
                x.view(np.uint8).reshape(y.size, -1), y.view(np.uint8).reshape(-1), factor,
                *limits, code.origin + code.flip, code.flip, made.origin, 1,
            )  # fmt: skip
            return y

        return call

    return between(node, 1, scope, AVERAGE, make)


def flat(*arrays: NDArray) -> list[NDArray]:
    """Returns arrays of bytes as rows of unsigned ones."""
    return [array.view(np.uint8).reshape(-1) for array in arrays]
