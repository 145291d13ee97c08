"""QuantizeLinear, DequantizeLinear and DynamicQuantizeLinear."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np

from tenonnx.by_name import cacheable
from tenonnx_array.quant import align
from tenonnx_cpu.buffers import contiguous, empty
from tenonnx_cpu.capture.capturable import Capturable
from tenonnx_cpu.capture.launch import Launch, done, fix
from tenonnx_cpu.conv.channels_last import memory_order
from tenonnx_cpu.elementwise.kernels import operations as o
from tenonnx_cpu.elementwise.typed import APPLY, code_of, launch
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


# ONNX's codes of the types that numbers are rounded to, by ``output_dtype``.
TYPES_OF_CODE = {code: np.dtype(name) for code, name in ((2, "B"), (3, "b"), (4, "H"), (5, "h"))}


@specialize("QuantizeLinear")
@specialize("QuantizeLinear", domain="com.microsoft")
def quantize_linear(site: Site, plain: Call) -> Call | None:
    """float32 to bytes, or to 16 bits."""
    absent = TYPES_OF_CODE.get(site.attribute("output_dtype", 0) or 2)
    if absent is None or site.attribute("precision", 0):
        return None
    return _specialized(site, plain, o.QUANTIZE, absent)


@specialize("DequantizeLinear")
@specialize("DequantizeLinear", domain="com.microsoft")
def dequantize_linear(site: Site, plain: Call) -> Call | None:
    """Integers to float32."""
    if site.attribute("output_dtype", 0) not in (0, 1):
        return None
    return _specialized(site, plain, o.DEQUANTIZE, F32)


def _specialized(site: Site, plain: Call, operation: int, dtype: np.dtype[Any]) -> Call:
    scale, zero = site.constant(1), site.constant(2)
    is_single = scale is not None and scale.size == 1 and (zero is not None or not site.given(2))
    axis, block = site.attribute("axis", 1), site.attribute("block_size", 0)
    kernels = {o.QUANTIZE: QUANTIZE, o.DEQUANTIZE: DEQUANTIZE}
    (kernels[operation] if is_single else APPLY).request()
    call = Conversion(operation, dtype, is_single, axis, block, site.threads, plain)
    return Capturable(call)


@cacheable
@dataclass(frozen=True, eq=False)
class Conversion:
    """Rounds numbers to integers, or makes numbers of these.

    Attributes:
        operation: One of ``operations``.
        dtype: The result's, unless there is a zero point to be rounded to.
        is_single: Whether scale and zero point are constants, one for all.
        axis: The axis of several.
        block: How many elements along it share one; 0 if each has its own.
        threads: How many to use at most.
        plain: Computes the same from arrays of any type.
    """

    operation: int
    dtype: np.dtype[Any]
    is_single: bool
    axis: int
    block: int
    threads: int
    plain: Call

    def __call__(self, x: NDArray, scale: NDArray, zero: NDArray | None = None) -> Any:
        """Return a launch, or the result."""
        rounds = self.operation == o.QUANTIZE
        dtype = zero.dtype if rounds and zero is not None else self.dtype
        narrow, real = (dtype, x.dtype) if rounds else (x.dtype, F32)
        made = None
        if scale.dtype == real == F32 and (zero is None or zero.dtype == narrow):
            by_number = self.is_single and narrow in BYTE_DTYPES
            made = (self._by_number if by_number else self._by_array)(x, scale, zero, narrow)
        return self.plain(x, scale, zero) if made is None else made

    def _by_number(
        self, x: NDArray, scale: NDArray, zero: NDArray | None, narrow: np.dtype[Any]
    ) -> Launch | None:
        step, origin = float(scale.reshape(())), 0 if zero is None else int(zero.reshape(()))
        if self.operation == o.QUANTIZE:
            return quantize_launch(x, step, origin, narrow, self.threads)
        return dequantize_launch(x, step, origin, self.threads)

    def _by_array(
        self, x: NDArray, scale: NDArray, zero: NDArray | None, narrow: np.dtype[Any]
    ) -> Launch | None:
        element, result = code_of(narrow), narrow if self.operation == o.QUANTIZE else F32
        if element is None or not o.is_known(self.operation, element):
            return None
        if self.block and scale.size > 1:
            if not x.ndim or x.shape[self.axis] % self.block:
                return None
            x = contiguous(x)
        given, steps, origins = align(np, x, scale, zero, self.axis, self.block)
        origins = fix(np.zeros((), narrow)) if origins is None else origins
        made = launch(self.operation, element, (given, steps, origins), result, self.threads)
        return None if made is None else made._replace(result=made.result.reshape(x.shape))
