"""Nodes between DequantizeLinear and QuantizeLinear, which kernels do from bytes to bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from tenonnx_cpu.fuse import Fused, Scope
from tenonnx_cpu.int8.quantized_values import (
    BYTES,
    QuantizedType,
    dequantized,
    quantized_type_of,
    quantizer,
    unread,
)
from tenonnx_cpu.jit.runtime import JitKernel
from tenonnx_cpu.kernel_selection import Call, NDArray

if TYPE_CHECKING:
    import onnx_ir as ir

SERIAL = 1 << 16
"""Bytes up to which one thread is done before others have started."""

Make = Callable[[Sequence[QuantizedType], QuantizedType, float, Call], Call]


def requantize(
    node: ir.Node, count: int, scope: Scope, kernel: JitKernel, make: Make
) -> Fused | None:
    """Fuses a node whose first ``count`` inputs are dequantized and whose result is quantized.

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
    following = scope.follower(node.outputs[0], "Relu")
    if following is not None:
        nodes.append(following)
        least = 0.0
    last = quantizer(nodes[-1].outputs[0], scope)
    if last is None:
        return None
    found = [source for source in sources if source is not None]
    codes = [code for source in found if (code := quantized_type_of(source, scope)) is not None]
    made = quantized_type_of(last, scope)
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


def byte_limits(code: QuantizedType, least: float) -> tuple[float, float]:
    """Returns the least and the greatest byte, from the zero point on, of numbers so large."""
    low, high = code.bounds
    return (max(low, round(least / code.step)) if least > -np.inf else low), high


def flat(*arrays: NDArray) -> list[NDArray]:
    """Returns arrays of bytes as rows of unsigned ones."""
    return [array.view(np.uint8).reshape(-1) for array in arrays]
