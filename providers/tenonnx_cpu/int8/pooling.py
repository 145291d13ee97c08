"""MaxPool and GlobalAveragePool between DequantizeLinear and QuantizeLinear."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tenonnx.by_name import cacheable
from tenonnx_cpu.buffers import contiguous, empty
from tenonnx_cpu.capture.capturable import Capturable
from tenonnx_cpu.capture.launch import Launch
from tenonnx_cpu.conv.attributes import Attributes
from tenonnx_cpu.conv.channels_last import channels_first, channels_last, taking_first, taking_last
from tenonnx_cpu.conv.layout import numbers_of, places_of
from tenonnx_cpu.conv.pooling import EMPTY
from tenonnx_cpu.fuse import QUANTIZED, Fused, Scope, fusion
from tenonnx_cpu.int8.conv import of_first, with_constants
from tenonnx_cpu.int8.kernels import POOL_FIELDS
from tenonnx_cpu.int8.quantized_values import (
    ALL,
    BYTE_DTYPES,
    REQUANTIZED,
    QuantizedType,
    quantized_type_at,
)
from tenonnx_cpu.int8.requantize import MAX_SERIAL_BYTES, Limits, flat, requantize
from tenonnx_cpu.jit.runtime import JitKernel
from tenonnx_cpu.jit.scratch import pieces
from tenonnx_cpu.kernel_selection import Call, NDArray, Site, specialize

if TYPE_CHECKING:
    import onnx_ir as ir

MAX_POOL, AVERAGE = (JitKernel("int8.requantize", name) for name in ("max_pool", "average"))


@fusion("MaxPool", priority=QUANTIZED, takes=REQUANTIZED)
def fuse_max_pool(node: ir.Node, scope: Scope) -> Fused | None:
    """The maximum of bytes, where they stand for the same numbers before and after."""
    site = scope.site(node)
    if len(node.outputs) > 1 or site.attribute("ceil_mode", 0):
        return None

    def make(
        codes: Sequence[QuantizedType], made: QuantizedType, limits: Limits, plain: Call
    ) -> Call:
        same = codes[0].same(made) and limits == ALL
        return max_pool_of_bytes(site, plain) if same else plain

    return requantize(node, 1, scope, MAX_POOL, make)


def max_pool_of_bytes(site: Site, plain: Call) -> Call:
    """Return MaxPool of bytes ``(N, C, H, W)``, with the attributes of a node."""
    kernel = tuple(site.attribute("kernel_shape", ()))
    attributes = Attributes.of(site)
    if len(kernel) != 2 or site.attribute("ceil_mode", 0):
        return plain
    MAX_POOL.request()
    return Capturable(functools.partial(_greatest, attributes, kernel, site.threads, plain))


@cacheable
def _greatest(
    attributes: Attributes, kernel: tuple[int, ...], threads: int, plain: Call, x: NDArray
) -> Any:
    run, cut = MAX_POOL.run, _placed(attributes, kernel, x.shape)
    if run is None or cut is None or x.dtype not in BYTE_DTYPES:
        return plain(x)
    output, numbers = cut
    y = empty((x.shape[0], *output, x.shape[1]), x.dtype)
    flip = 128 if x.dtype == np.int8 else 0
    flattened = flat(contiguous(channels_last(x)), y)
    arguments = *flattened, flip, numbers, threads if x.size > MAX_SERIAL_BYTES else 1
    return Launch(run, arguments, channels_first(y))


@functools.lru_cache(maxsize=256)
def _placed(
    attributes: Attributes, kernel: tuple[int, ...], shape: tuple[int, ...]
) -> tuple[tuple[int, ...], NDArray] | None:
    windows = attributes.windows(shape, (1, shape[1], *kernel)) if len(shape) == 4 else None
    if windows is None or math.prod(kernel) > EMPTY * math.prod(shape[2:]):
        return None
    (top, left), (step_y, step_x) = windows.begins, windows.dilations
    places = places_of(windows) | {"top": top, "left": left}
    return windows.output, numbers_of(
        POOL_FIELDS, **places, channels=shape[1], kernel_y=kernel[0], kernel_x=kernel[1],
        step_y=step_y, step_x=step_x,
    )  # fmt: skip


@fusion("GlobalAveragePool", priority=QUANTIZED, takes=REQUANTIZED)
def fuse_average(node: ir.Node, scope: Scope) -> Fused | None:
    """The mean of each channel of bytes."""

    def make(
        codes: Sequence[QuantizedType], made: QuantizedType, limits: Limits, plain: Call
    ) -> Call:
        return average_of_bytes(codes[0], made, made.between(limits), plain)

    return requantize(node, 1, scope, AVERAGE, make)


@specialize("QLinearGlobalAveragePool", domain="com.microsoft")
def qlinear_average(site: Site, plain: Call) -> Call | None:
    """The same as one operator, wherever its images have their channels."""
    code, made = quantized_type_at(site, 1), quantized_type_at(site, 3)
    if code is None or made is None:
        return None
    last = bool(site.attribute("channels_last", 0))
    rest = tuple(site.constant(position) for position in range(1, 5))
    whole = functools.partial(with_constants, plain, rest)
    call = average_of_bytes(code, made, made.bounds, taking_first(whole, 0) if last else whole)
    return functools.partial(of_first, taking_last(call, 0) if last else call)


def average_of_bytes(
    code: QuantizedType, made: QuantizedType, limits: tuple[float, float], plain: Call
) -> Call:
    """Return what computes the mean of each channel of bytes ``(N, C, D1, ...)``.

    Args:
        code: What they stand for.
        made: What the result's bytes do.
        limits: The least and the greatest result, from the zero point on.
        plain: Computes the same.
    """
    AVERAGE.request()
    return Capturable(functools.partial(_averaged, code, made, limits, plain))


@cacheable
def _averaged(
    code: QuantizedType, made: QuantizedType, limits: tuple[float, float], plain: Call, x: NDArray
) -> Any:
    run = AVERAGE.run
    if run is None or x.dtype != code.dtype or x.ndim < 3 or not x.size:
        return plain(x)
    batch, channels = x.shape[:2]
    image = contiguous(channels_last(x)).view(np.uint8).reshape(batch, -1, channels)
    y = empty((batch, channels), made.dtype)
    factor = code.step / made.step / image.shape[1]
    arguments = (
        image, y.view(np.uint8), *pieces(((channels,), np.int32)), factor, *limits,
        code.origin + code.flip, code.flip, made.origin,
    )  # fmt: skip
    return Launch(run, arguments, y.reshape(batch, channels, *(1,) * (x.ndim - 2)))
