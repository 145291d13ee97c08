"""QuantizeLinear, DequantizeLinear and DynamicQuantizeLinear with one scale for all."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from tenonnx.by_name import cacheable
from tenonnx_cpu.buffers import contiguous, empty
from tenonnx_cpu.capture.capturable import Capturable, where_constant
from tenonnx_cpu.capture.launch import Launch, done
from tenonnx_cpu.conv.channels_last import memory_order
from tenonnx_cpu.int8.quantized_values import BYTE_DTYPES
from tenonnx_cpu.jit.runtime import JitKernel
from tenonnx_cpu.jit.scratch import pieces
from tenonnx_cpu.kernel_selection import Call, NDArray, Site, specialize
from tenonnx_cpu.matmul.product import F32

QUANTIZE, DEQUANTIZE, BY_RANGE = (
    JitKernel("int8.quantizing", name) for name in ("quantize", "dequantize", "quantize_by_range")
)
# Numbers that a thread takes at a time.
CHUNK_NUMBERS = 1 << 15

# Numbers up to which numpy is as fast as a call that is not captured.
MAX_NUMPY_NUMBERS = 64


def quantize(x: NDArray, scale: float, zero: int, dtype: np.dtype[Any], threads: int) -> Any:
    """Return ``clip(round(x / scale) + zero)`` as bytes; ``None`` if the kernel is not ready."""
    return (
        None
        if x.size <= MAX_NUMPY_NUMBERS
        else done(quantize_launch(x, scale, zero, dtype, threads))
    )


def quantize_launch(
    x: NDArray, scale: float, zero: int, dtype: np.dtype[Any], threads: int
) -> Launch | None:
    """Return what computes that."""
    run = QUANTIZE.run
    if run is None or x.dtype != F32 or not x.size:
        return None
    limits = np.iinfo(dtype)
    order = memory_order(x)
    rows = in_rows(x.transpose(order))
    y = empty(x.transpose(order).shape, dtype)
    low, high = float(limits.min - zero), float(limits.max - zero)
    own = threads if x.size > CHUNK_NUMBERS else 1
    arguments = rows, y.view(np.uint8).reshape(-1), scale, low, high, zero, own
    return Launch(run, arguments, y.transpose(np.argsort(order)))


def dequantize(x: NDArray, scale: float, zero: int, threads: int) -> Any:
    """Return ``(x - zero) * scale`` as float32; ``None`` if the kernel does not take x."""
    return None if x.size <= MAX_NUMPY_NUMBERS else done(dequantize_launch(x, scale, zero, threads))


def dequantize_launch(x: NDArray, scale: float, zero: int, threads: int) -> Launch | None:
    """Return what computes that."""
    run = DEQUANTIZE.run
    if run is None or x.dtype not in BYTE_DTYPES or not x.size:
        return None
    flip = 128 if x.dtype == np.int8 else 0
    x, y, made = alike(x, F32)
    own = threads if x.size > CHUNK_NUMBERS else 1
    arguments = x.view(np.uint8).reshape(-1), y.reshape(-1), scale, zero + flip, flip, own
    return Launch(run, arguments, made)


def in_rows(x: NDArray) -> NDArray:
    """Return an array as rows of adjacent elements, where it lies if it can be."""
    run, axis = 1, x.ndim
    while axis and (x.strides[axis - 1] == run * x.itemsize or x.shape[axis - 1] == 1):
        axis -= 1
        run *= x.shape[axis]
    try:
        return x.reshape(-1, run, copy=False) if x.flags.aligned else contiguous(x).reshape(1, -1)
    except ValueError:
        return contiguous(x).reshape(1, -1)


def alike(x: NDArray, dtype: np.dtype[Any]) -> tuple[NDArray, NDArray, NDArray]:
    """Return an array's elements in the order of memory, room for as many, and that as x lies."""
    order = memory_order(x)
    lain = contiguous(x.transpose(order))
    y = empty(lain.shape, dtype)
    return lain, y, y.transpose(np.argsort(order))


def dynamic_quantize(x: NDArray, threads: int) -> Launch | None:
    """Return what computes DynamicQuantizeLinear's results; ``None`` for numpy.

    The launch is refused if the range is infinite, or too narrow for a scale.
    """
    run = BY_RANGE.run
    if run is None or x.dtype != F32 or not x.size:
        return None
    x, y, codes = alike(x, BYTE_DTYPES[0])
    scale, zero = empty(()), empty((), BYTE_DTYPES[0])
    chunks = -(-x.size // CHUNK_NUMBERS)
    refusal, ranges = pieces(((1,), np.int32), ((chunks, 2), np.float32))
    arguments = (
        x.reshape(-1), y.reshape(-1), scale.reshape(1), zero.reshape(1), ranges,
        refusal, threads if chunks > 1 else 1,
    )  # fmt: skip
    return Launch(run, arguments, (codes, scale, zero), refusal)


@specialize("DynamicQuantizeLinear")
def dynamic_quantize_linear(site: Site, plain: Call) -> Call | None:
    """The range, then the bytes."""
    BY_RANGE.request()
    return Capturable(functools.partial(_by_range, site.threads, plain))


@cacheable
def _by_range(threads: int, plain: Call, x: NDArray) -> Any:
    made = dynamic_quantize(x, threads)
    return plain(x) if made is None else made._replace(otherwise=plain)


def _single(site: Site) -> bool:
    """Return whether a node has one scale for all, and nothing out of the ordinary."""
    scale = site.node.inputs[1]
    known = None if scale is None else scale.shape
    single = site.scalar(1) is not None or (known is not None and len(known) == 0)
    return single and not site.attribute("precision", 0)


@specialize("QuantizeLinear")
@specialize("QuantizeLinear", domain="com.microsoft")
def quantize_linear(site: Site, plain: Call) -> Call | None:
    """float32 to bytes."""
    if not _single(site) or site.attribute("output_dtype", 0) not in (0, 2, 3):
        return None
    QUANTIZE.request()
    absent = BYTE_DTYPES[1] if site.attribute("output_dtype", 0) == 3 else BYTE_DTYPES[0]
    call = functools.partial(_quantized, absent, site.threads, plain)
    return where_constant(site, (1, 2), call)


@cacheable
def _quantized(
    absent: np.dtype[Any], threads: int, plain: Call,
    x: NDArray, scale: NDArray, zero: NDArray | None = None,
) -> Any:  # fmt: skip
    """Quantize to the zero point's dtype, or to ``absent`` without one."""
    dtype = absent if zero is None else zero.dtype
    y = None
    if scale.size == 1 and scale.dtype == F32 and dtype in BYTE_DTYPES:
        origin = 0 if zero is None else int(zero.reshape(()))
        y = quantize_launch(x, float(scale.reshape(())), origin, dtype, threads)
    return plain(x, scale, zero) if y is None else y


@specialize("DequantizeLinear")
@specialize("DequantizeLinear", domain="com.microsoft")
def dequantize_linear(site: Site, plain: Call) -> Call | None:
    """Bytes to float32."""
    if not _single(site) or site.attribute("output_dtype", 0) not in (0, 1):
        return None
    DEQUANTIZE.request()
    return where_constant(site, (1, 2), functools.partial(_dequantized, site.threads, plain))


@cacheable
def _dequantized(
    threads: int, plain: Call, x: NDArray, scale: NDArray, zero: NDArray | None = None
) -> Any:
    y = None
    if scale.size == 1 and scale.dtype == F32 and (zero is None or zero.size == 1):
        origin = 0 if zero is None else int(zero.reshape(()))
        y = dequantize_launch(x, float(scale.reshape(())), origin, threads)
    return plain(x, scale, zero) if y is None else y
