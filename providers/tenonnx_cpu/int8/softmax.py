"""``com.microsoft::QLinearSoftmax``: bytes to numbers, their softmax, and bytes again."""

from __future__ import annotations

from typing import Any

from tenonnx_cpu.int8.quantized_values import quantized_type_at
from tenonnx_cpu.int8.quantizing import DEQUANTIZE, QUANTIZE, dequantize, quantize
from tenonnx_cpu.kernel_selection import Call, NDArray, Site, specialize
from tenonnx_cpu.norm.norms import SOFTMAX, specialize_softmax


def nothing(_: NDArray) -> None:
    """Stands for what numpy would compute."""


@specialize("QLinearSoftmax", domain="com.microsoft")
def qlinear_softmax(site: Site, plain: Call) -> Call | None:
    """Along the last axis, between constant scales."""
    x_code, y_code = quantized_type_at(site, 1), quantized_type_at(site, 3)
    axis, threads = site.attribute("axis", -1), site.threads
    if x_code is None or y_code is None:
        return None
    for kernel in (DEQUANTIZE, SOFTMAX, QUANTIZE):
        kernel.request()
    softmax = specialize_softmax(site, nothing)

    def call(x: NDArray, *rest: Any) -> Any:
        real = None
        if x.dtype == x_code.dtype and axis in (-1, x.ndim - 1):
            real = dequantize(x, x_code.step, x_code.origin, threads)
        real = None if real is None or softmax is None else softmax(real)
        y = None
        if real is not None:
            y = quantize(real, y_code.step, y_code.origin, y_code.dtype, threads)
        return plain(x, *rest) if y is None else y

    return call
