"""MaxPool and GlobalAveragePool between DequantizeLinear and QuantizeLinear."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tenonnx_cpu.buffers import empty
from tenonnx_cpu.conv.attributes import Attributes
from tenonnx_cpu.conv.channels_last import taking_first, taking_last
from tenonnx_cpu.fuse import Fused, Scope, fusion
from tenonnx_cpu.int8.between import SERIAL, between, byte_limits, flat
from tenonnx_cpu.int8.codes import BYTES, Code, code_at
from tenonnx_cpu.int8.conv_layout import bytes_layout
from tenonnx_cpu.jit.runtime import JitKernel
from tenonnx_cpu.jit.scratch import floats
from tenonnx_cpu.specialise import Call, NDArray, Site, specialise

if TYPE_CHECKING:
    import onnx_ir as ir

MAX_POOL, AVERAGE = (JitKernel("int8.between", name) for name in ("max_pool", "average"))


@fusion("MaxPool", turn=-1)
def fuse_max_pool(node: ir.Node, scope: Scope) -> Fused | None:
    """The maximum of bytes, where they stand for the same numbers before and after."""
    site = scope.site(node)
    if len(node.outputs) > 1 or site.attribute("ceil_mode", 0):
        return None

    def make(codes: Sequence[Code], made: Code, least: float, plain: Call) -> Call:
        same = codes[0].same(made) and least != 0
        return max_pool_of_bytes(site, plain) if same else plain

    return between(node, 1, scope, MAX_POOL, make)


def max_pool_of_bytes(site: Site, plain: Call) -> Call:
    """Returns MaxPool of bytes ``(N, C, H, W)``, with the attributes of a node."""
    kernel = tuple(site.attribute("kernel_shape", ()))
    attributes = Attributes.of(site)
    if len(kernel) != 2 or site.attribute("ceil_mode", 0):
        return plain
    MAX_POOL.request()

    def call(x: NDArray) -> Any:
        run = MAX_POOL.run
        if run is None or x.ndim != 4 or x.dtype not in BYTES:
            return plain(x)
        channels = x.shape[0] * x.shape[1]
        windows = attributes.windows(x.shape, (1, x.shape[1], *kernel))
        if windows is None:
            return plain(x)
        cut = bytes_layout((1, 1, *windows.size), 1, 1, windows, 1, whole=True)
        y = empty((*x.shape[:2], *windows.output), x.dtype)
        threads = min(site.threads, channels) if x.size > SERIAL else 1
        run(
            *flat(np.ascontiguousarray(x), y), 128 if x.dtype == np.int8 else 0, cut.numbers,
            cut.offsets, cut.planes, floats(cut.floats * threads), threads,
        )  # fmt: skip
        return y

    return call


@fusion("GlobalAveragePool", turn=-1)
def fuse_average(node: ir.Node, scope: Scope) -> Fused | None:
    """The mean of each channel of bytes."""

    def make(codes: Sequence[Code], made: Code, least: float, plain: Call) -> Call:
        return average_of_bytes(codes[0], made, byte_limits(made, least), plain)

    return between(node, 1, scope, AVERAGE, make)


@specialise("QLinearGlobalAveragePool", domain="com.microsoft")
def qlinear_average(site: Site, plain: Call) -> Call | None:
    """The same as one operator, wherever its images have their channels."""
    code, made = code_at(site, 1), code_at(site, 3)
    if code is None or made is None:
        return None
    last = bool(site.attribute("channels_last", 0))
    rest = tuple(site.constant(position) for position in range(1, 5))

    def whole(x: NDArray) -> Any:
        return plain(x, *rest)

    call = average_of_bytes(code, made, made.bounds, taking_first(whole, 0) if last else whole)
    call = taking_last(call, 0) if last else call
    return lambda x, *_: call(x)


def average_of_bytes(code: Code, made: Code, limits: tuple[float, float], plain: Call) -> Call:
    """Returns what computes the mean of each channel of bytes ``(N, C, D1, ...)``.

    Args:
        code: What they stand for.
        made: What the result's bytes do.
        limits: The least and the greatest result, from the zero point on.
        plain: Computes the same.
    """
    AVERAGE.request()
    factor = code.step / made.step

    def call(x: NDArray) -> Any:
        run = AVERAGE.run
        if run is None or x.dtype != code.dtype or x.ndim < 3 or not x.size:
            return plain(x)
        y = np.empty((*x.shape[:2], *(1,) * (x.ndim - 2)), made.dtype)
        image = np.ascontiguousarray(x).view(np.uint8)
        run(
            image.reshape(y.size, -1), y.view(np.uint8).reshape(-1), factor,
            *limits, code.origin + code.flip, code.flip, made.origin, 1,
        )  # fmt: skip
        return y

    return call
