"""``com.microsoft::QLinearSoftmax``: bytes to numbers, their softmax, and bytes again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tenonnx.by_name import cacheable
from tenonnx_cpu.int8.quantized_values import QuantizedType, quantized_type_at
from tenonnx_cpu.int8.quantizing import DEQUANTIZE, QUANTIZE, dequantize, quantize
from tenonnx_cpu.kernel_selection import Call, NDArray, Site, specialize
from tenonnx_cpu.norm.norms import SOFTMAX, specialize_softmax


def nothing(_: NDArray) -> None:
    """Stand for what numpy would compute."""


@specialize("QLinearSoftmax", domain="com.microsoft")
def qlinear_softmax(site: Site, plain: Call) -> Call | None:
    """Along the last axis, between constant scales."""
    x_code, y_code = quantized_type_at(site, 1), quantized_type_at(site, 3)
    if x_code is None or y_code is None:
        return None
    for kernel in (DEQUANTIZE, SOFTMAX, QUANTIZE):
        kernel.request()
    softmax = specialize_softmax(site, nothing)
    axis = site.attribute("axis", -1)
    return ByteSoftmaxCall(axis, x_code, y_code, softmax or nothing, site.threads, plain)


@cacheable
@dataclass(frozen=True, eq=False)
class ByteSoftmaxCall:
    """The softmax of bytes along the last axis.

    Attributes:
        axis: Along which it is computed.
        x_code: What the bytes stand for.
        y_code: What the result's stand for.
        softmax: Computes it of floats; ``None`` where numpy must.
        threads: How many to use at most.
        plain: Computes the same from the same inputs.
    """

    axis: int
    x_code: QuantizedType
    y_code: QuantizedType
    softmax: Call
    threads: int
    plain: Call

    def __call__(self, x: NDArray, *rest: Any) -> Any:
        """Return the bytes of the result."""
        real, x_code, y_code = None, self.x_code, self.y_code
        if x.dtype == x_code.dtype and self.axis in (-1, x.ndim - 1):
            real = dequantize(x, x_code.step, x_code.origin, self.threads)
        real = None if real is None else self.softmax(real)
        y = None
        if real is not None:
            y = quantize(real, y_code.step, y_code.origin, y_code.dtype, self.threads)
        return self.plain(x, *rest) if y is None else y
