"""Nodes between DequantizeLinear and QuantizeLinear, which kernels do from bytes to bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from tenonnx_cpu.fuse import Fused, Scope
from tenonnx_cpu.int8.quantized_values import (
    ALL,
    BYTE_DTYPES,
    LIMITS,
    QuantizedType,
    dequantized,
    quantized_type_of,
)
from tenonnx_cpu.jit.runtime import JitKernel
from tenonnx_cpu.kernel_selection import Call, NDArray

if TYPE_CHECKING:
    import onnx_ir as ir

# Bytes up to which one thread is done before others have started.
MAX_SERIAL_BYTES = 1 << 16

Limits: TypeAlias = tuple[float, float]

Make = Callable[[Sequence[QuantizedType], QuantizedType, Limits, Call], Call]


def requantize(
    node: ir.Node, count: int, scope: Scope, kernel: JitKernel, make: Make
) -> Fused | None:
    """Fuse a node whose first ``count`` inputs are dequantized and whose result is quantized.

    Args:
        node: The node; its fusion takes ``REQUANTIZED``.
        count: How many inputs.
        scope: Where it is.
        kernel: Is requested if all fits.
        make: From the inputs' codes, the result's, the limits of the result and what computes
            the same from bytes, returns what to call.
    """
    sources = [dequantized(value, scope) for value in node.inputs[:count]]
    found = [source for source in sources if source is not None]
    codes = [code for source in found if (code := quantized_type_of(source, scope)) is not None]
    if len(codes) < count or not all(
        code.is_single and code.dtype in BYTE_DTYPES for code in codes
    ):
        return None
    walk = scope.follow(node)
    if not walk.is_whole:
        return None
    made, limits = walk.found["quantizer"], walk.found.get(LIMITS.name, ALL)
    inputs = (source.inputs[0] for source in found)
    kernel.request()
    return scope.fused(walk.nodes, inputs, lambda plain: make(codes, made, limits, plain), found)


def flat(*arrays: NDArray) -> list[NDArray]:
    """Return arrays of bytes as rows of unsigned ones."""
    return [array.view(np.uint8).reshape(-1) for array in arrays]
