"""MaxPool, AveragePool and GlobalAveragePool on the CPU provider's own kernels."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from tenonnx.by_name import cacheable
from tenonnx_array.windows import Windows, place
from tenonnx_cpu.buffers import F32, F64, contiguous, empty, frozen
from tenonnx_cpu.capture.capturable import Capturable
from tenonnx_cpu.capture.launch import Launch, ahead
from tenonnx_cpu.conv.attributes import as_image
from tenonnx_cpu.conv.depthwise import PLAN_DEPTHWISE, depthwise_layout
from tenonnx_cpu.conv.typed_windows import MAX_WINDOWS, maxima
from tenonnx_cpu.elementwise.kernels.operations import FLOAT32, INT8, UINT8
from tenonnx_cpu.elementwise.typed import APPLY, launch
from tenonnx_cpu.int8.quantized_values import BYTE_DTYPES
from tenonnx_cpu.jit.runtime import JitKernel
from tenonnx_cpu.jit.scratch import worker_floats
from tenonnx_cpu.kernel_selection import Call, NDArray, Site, specialize
from tenonnx_cpu.matmul.product import fits
from tenonnx_cpu.reduce.fold import FOLD, folded

POOL = JitKernel("conv.pool", "pool_f32")
POOL_VOLUME = JitKernel("conv.pool_volume", "pool_volume_f32")
AVERAGE = JitKernel("conv.pool", "average_f32")

# The number of elements that count for windows along the depth, the lines and the columns.
Counts: TypeAlias = tuple[NDArray, ...]

NO_ARRAY = np.empty(0, np.float32)
# Elements up to which one thread is done before others have started.
MAX_SERIAL_POOLED_ELEMENTS = 1 << 16

# Elements of a channel of the result up to which beginning with one takes a share of its time.
MAX_SHARED_CHANNEL_ELEMENTS = 1 << 10

# A window of so many times the image's elements sees next to nothing; the kernel visits it all.
EMPTY = 16


@specialize("MaxPool", "AveragePool")
def pool(site: Site, plain: Call) -> Call | None:
    """Pooling of float32 lines, images and volumes; maxima of bytes and float64, too."""
    if len(site.node.outputs) > 1:
        return None
    kernel = tuple(site.attribute("kernel_shape", ()))
    (POOL_VOLUME if len(kernel) == 3 else POOL).request()
    PLAN_DEPTHWISE.request()
    if site.dtype(0) in BYTE_DTYPES:
        APPLY.request()
    if site.dtype(0) == F64:
        MAX_WINDOWS.request()
    attributes = PoolAttributes(
        kernel,
        _numbers(site, "strides"),
        _numbers(site, "dilations"),
        _numbers(site, "pads"),
        site.attribute("auto_pad", "NOTSET"),
        site.attribute("ceil_mode", 0),
        site.node.op_type == "AveragePool",
        bool(site.attribute("count_include_pad", 0)),
        site.threads,
    )
    return Capturable(functools.partial(_pooled, attributes, plain))


def _numbers(site: Site, name: str) -> tuple[int, ...] | None:
    value = site.attribute(name, None)
    return None if value is None else tuple(value)


@cacheable
def _pooled(attributes: PoolAttributes, plain: Call, x: NDArray) -> Any:
    if x.dtype in BYTE_DTYPES and not attributes.means:
        return _pooled_bytes(attributes, plain, x)
    made = _pool(attributes, x) if x.dtype != F64 else _pool_doubles(attributes, x)
    if made is None:
        return plain(x)
    return made if attributes.means else made._replace(result=(made.result,))


def _pooled_bytes(attributes: PoolAttributes, plain: Call, x: NDArray) -> Any:
    """Take maxima in float32, which has all bytes."""
    dtype, threads = x.dtype, attributes.threads
    code = INT8 if dtype == np.int8 else UINT8
    wide = launch(FLOAT32, code, (x,), F32, threads) if _planned(attributes, x.shape) else None
    pooled = None if wide is None else _pool(attributes, ahead(wide))
    made = None if pooled is None else launch(code, FLOAT32, (ahead(pooled),), dtype, threads)
    return plain(x) if made is None else made._replace(result=(made.result,))


def _pool_doubles(attributes: PoolAttributes, x: NDArray) -> Launch | None:
    """Take maxima in float64; ``None`` for means, or if no kernel does."""
    windows = None if attributes.means else _placed(attributes, x.shape)
    return None if windows is None else maxima(x, windows, attributes.threads)


def _pool(attributes: PoolAttributes, x: NDArray) -> Launch | None:
    """Return what pools float32; ``None`` if no kernel does."""
    planned = _planned(attributes, x.shape)
    run = None if planned is None else planned.kernel.run
    if planned is None or run is None or x.dtype != F32:
        return None
    x, y = contiguous(x), empty(planned.output)
    memory = worker_floats(planned.floats, planned.threads)
    arguments = x.reshape(-1), y.reshape(-1), *planned.places, memory, planned.threads
    return Launch(run, arguments, y)


@cacheable
@dataclass(frozen=True)
class PoolAttributes:
    """A node's attributes.

    Attributes:
        kernel: The sizes of a window.
        strides: The distances of windows.
        dilations: The distances of a window's elements.
        pads: The padding of images.
        auto_pad: The name of a rule for it.
        ceil_mode: Whether the last windows may reach beyond the padding.
        means: Whether windows have their mean, not their maximum.
        padding: Whether means count the padding.
        threads: How many to use at most.
    """

    kernel: tuple[int, ...]
    strides: tuple[int, ...] | None
    dilations: tuple[int, ...] | None
    pads: tuple[int, ...] | None
    auto_pad: str
    ceil_mode: int
    means: bool
    padding: bool
    threads: int


def _placed(attributes: PoolAttributes, shape: tuple[int, ...]) -> Windows | None:
    """Return the windows over images of a shape; ``None`` if no kernel takes them."""
    kernel = attributes.kernel
    if len(kernel) not in (1, 2, 3) or len(shape) != len(kernel) + 2 or 0 in shape:
        return None
    if math.prod(kernel) > EMPTY * math.prod(shape[2:]):
        return None
    try:
        windows = place(
            size=shape[2:], kernel=kernel, strides=attributes.strides,
            dilations=attributes.dilations, pads=attributes.pads, auto_pad=attributes.auto_pad,
            ceil_mode=attributes.ceil_mode,
        )  # fmt: skip
    except ValueError:
        return None
    return windows if windows.is_near and 0 not in windows.output else None


def _planned(attributes: PoolAttributes, shape: tuple[int, ...]) -> Pooling | None:
    """Return the pooling of images of a shape; ``None`` if no kernel does it."""
    windows = None if PLAN_DEPTHWISE.run is None else _placed(attributes, shape)
    if windows is None:
        return None
    threads = attributes.threads if math.prod(shape) > MAX_SERIAL_POOLED_ELEMENTS else 1
    weights: NDArray = NO_ARRAY
    counts: Counts = (NO_ARRAY,) * 3
    if attributes.means:
        weights, counts = _counts(windows, attributes.padding)
    return _pooling(len(attributes.kernel))(shape, windows, weights, counts, threads)


@dataclass(frozen=True)
class Pooling:
    """The pooling of images or volumes of one shape.

    Attributes:
        kernel: What does it.
        output: The result's shape.
        places: What the kernel takes between the result and the memory that it works in.
        floats: Memory that a thread needs.
        threads: How many threads are of use.
    """

    kernel: JitKernel
    output: tuple[int, ...]
    places: tuple[Any, ...]
    floats: int
    threads: int


def _pooling(axes: int) -> Callable[..., Pooling]:
    """Return what cuts work for windows of so many axes."""
    if axes == 3:
        from tenonnx_cpu.conv.pooling_volumes import pool_volumes

        return pool_volumes
    return pool_images


def pool_images(
    shape: tuple[int, ...], windows: Windows, weights: NDArray, counts: Counts, threads: int
) -> Pooling:
    """Return how windows slide over images ``(N, C, H, W)``, or lines ``(N, C, W)``."""
    windows = as_image(windows)
    output = (*shape[:2], *windows.output[4 - len(shape) :])
    image, (_, rows, columns) = (*shape[:2], *windows.size), counts
    if _within_lines(windows):
        images = math.prod(shape[:2])
        windows, rows = _as_one(windows, images), frozen(np.tile(rows, images))
        image = (1, 1, *windows.size)
    cut = depthwise_layout(image, image[1], windows, threads)
    places = weights, rows, columns, cut.numbers, cut.offsets, cut.planes
    return Pooling(POOL, output, places, cut.floats, cut.threads)


def _within_lines(windows: Windows) -> bool:
    """Return whether small images below one another are one image to windows that end in theirs."""
    (size, _), (kernel, _), (stride, _), (step, _) = (
        windows.size, windows.kernel, windows.strides, windows.dilations
    )  # fmt: skip
    whole = windows.output[0] * stride == size and not windows.begins[0] and not windows.ends[0]
    return (
        whole
        and (kernel - 1) * step < stride
        and math.prod(windows.output) <= MAX_SHARED_CHANNEL_ELEMENTS
    )


def _as_one(windows: Windows, images: int) -> Windows:
    """Return windows of so many images below one another."""
    (height, *size), (lines, *output) = windows.size, windows.output
    return windows._replace(size=(images * height, *size), output=(images * lines, *output))


def _counts(windows: Windows, padding: bool) -> tuple[NDArray, Counts]:
    """Return a one per tap, and how many elements count along each axis; a window has one."""
    along = [
        frozen(np.maximum(windows.counts(axis, padding=padding), 1).astype(np.float32))
        for axis in range(len(windows.size))
    ]
    counts = *[frozen(np.ones(1, np.float32))] * (3 - len(along)), *along
    return frozen(np.ones(math.prod(windows.kernel), np.float32)), counts


@specialize("GlobalAveragePool")
def global_average_pool(site: Site, plain: Call) -> Call | None:
    """The mean of each channel, in float32."""
    AVERAGE.request()
    FOLD.request()
    return Capturable(functools.partial(_averaged_image, site.threads, plain))


@cacheable
def _averaged_image(threads: int, plain: Call, x: NDArray) -> Any:
    if x.ndim < 3 or x.dtype != F32:
        return plain(x)
    run = AVERAGE.run
    if run is None or not x.size or not fits(x):
        return folded("ReduceMean", x, tuple(range(2, x.ndim)), True, threads) or plain(x)
    y = empty((*x.shape[:2], *(1,) * (x.ndim - 2)))
    team = threads if x.size > MAX_SERIAL_POOLED_ELEMENTS else 1
    return Launch(run, (x.reshape(y.size, -1), y.reshape(-1), team), y)
