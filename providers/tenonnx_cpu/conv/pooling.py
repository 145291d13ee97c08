"""MaxPool, AveragePool and GlobalAveragePool on the CPU provider's own kernels."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from tenonnx.records import record, replaced
from tenonnx_array.windows import Windows, place
from tenonnx_cpu.buffers import empty
from tenonnx_cpu.capture.capturable import Capturable
from tenonnx_cpu.capture.launch import Launch
from tenonnx_cpu.conv.attributes import as_image
from tenonnx_cpu.conv.channels_last import channels_last, is_last
from tenonnx_cpu.conv.depthwise import depthwise_layout
from tenonnx_cpu.jit.runtime import JitKernel
from tenonnx_cpu.jit.scratch import floats
from tenonnx_cpu.kernel_selection import F32, Call, NDArray, Site, specialize
from tenonnx_cpu.matmul.product import fits
from tenonnx_cpu.reduce.kernels import SUM
from tenonnx_cpu.reduce.reduction import REDUCE, cut_of, reduction

POOL = JitKernel("conv.pool", "pool_f32")
POOL_VOLUME = JitKernel("conv.pool_volume", "pool_volume_f32")
AVERAGE = JitKernel("conv.pool", "average_f32")

Counts: TypeAlias = tuple[NDArray, ...]
"""The number of elements that count for windows along the depth, the lines and the columns."""

NOTHING = np.empty(0, np.float32)
SERIAL = 1 << 16
"""Elements up to which one thread is done before others have started."""

SHORT = 1 << 10
"""Elements of a channel of the result up to which beginning with one takes a share of its time."""

EMPTY = 16
"""A window of so many times the image's elements sees next to nothing; the kernel visits it all."""


@specialize("MaxPool", "AveragePool")
def pool(site: Site, plain: Call) -> Call | None:
    """Pooling of float32 lines, images and volumes."""
    if len(site.node.outputs) > 1:
        return None
    kernel = tuple(site.attribute("kernel_shape", ()))
    attributes = {
        name: None if value is None else tuple(value)
        for name in ("strides", "dilations", "pads")
        for value in (site.attribute(name, None),)
    }
    placed = functools.partial(
        place,
        kernel=kernel,
        **attributes,
        auto_pad=site.attribute("auto_pad", "NOTSET"),
        ceil_mode=site.attribute("ceil_mode", 0),
    )
    means = site.node.op_type == "AveragePool"
    padding = bool(site.attribute("count_include_pad", 0))
    pooling = _pooling(len(kernel))

    @functools.lru_cache(maxsize=64)
    def plan(shape: tuple[int, ...]) -> Pooling | None:
        if len(kernel) not in (1, 2, 3) or len(shape) != len(kernel) + 2 or 0 in shape:
            return None
        if math.prod(kernel) > EMPTY * math.prod(shape[2:]):
            return None
        try:
            windows = placed(size=shape[2:])
        except ValueError:
            return None
        if 0 in windows.output:
            return None
        threads = site.threads if math.prod(shape) > SERIAL else 1
        weights, counts = _counts(windows, padding) if means else (NOTHING, (NOTHING,) * 3)
        return pooling(shape, windows, weights, counts, threads)

    def call(x: NDArray) -> Any:
        planned = plan(x.shape)
        run = None if planned is None else planned.kernel.run
        if planned is None or run is None or not fits(x):
            return plain(x)
        y = empty(planned.output)
        memory = floats(planned.floats * planned.threads)
        arguments = x.reshape(-1), y.reshape(-1), *planned.places, memory, planned.threads
        return Launch(run, arguments, y if means else (y,))

    return Capturable(call)


@record
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
    """Has the kernel for so many axes compiled; returns what cuts work for it."""
    if axes == 3:
        from tenonnx_cpu.conv.pooling_volumes import pool_volumes  # seldom

        POOL_VOLUME.request()
        return pool_volumes
    POOL.request()
    return pool_images


def pool_images(
    shape: tuple[int, ...], windows: Windows, weights: NDArray, counts: Counts, threads: int
) -> Pooling:
    """Returns how windows slide over images ``(N, C, H, W)``, or lines ``(N, C, W)``."""
    windows = as_image(windows)
    output = (*shape[:2], *windows.output[4 - len(shape) :])
    image, (_, rows, columns) = (*shape[:2], *windows.size), counts
    if _within_lines(windows):
        images = math.prod(shape[:2])
        windows, rows = _as_one(windows, images), np.tile(rows, images)
        image = (1, 1, *windows.size)
    cut = depthwise_layout(image, image[1], windows, threads)
    places = weights, rows, columns, cut.numbers, cut.offsets, cut.planes
    return Pooling(POOL, output, places, cut.floats, cut.threads)


def _within_lines(windows: Windows) -> bool:
    """Says whether small images below one another are one image to windows, which end in theirs."""
    (size, _), (kernel, _), (stride, _), (step, _) = (
        windows.size, windows.kernel, windows.strides, windows.dilations
    )  # fmt: skip
    whole = windows.output[0] * stride == size and not windows.begins[0] and not windows.ends[0]
    return whole and (kernel - 1) * step < stride and math.prod(windows.output) <= SHORT


def _as_one(windows: Windows, images: int) -> Windows:
    """Returns windows of so many images below one another."""
    (height, *size), (lines, *output) = windows.size, windows.output
    return replaced(windows, size=(images * height, *size), output=(images * lines, *output))


def _counts(windows: Windows, padding: bool) -> tuple[NDArray, Counts]:
    """Returns a one per tap, and how many elements count along each axis; a window has one."""
    along = [
        np.maximum(windows.counts(axis, padding=padding), 1).astype(np.float32)
        for axis in range(len(windows.size))
    ]
    counts = *[np.ones(1, np.float32)] * (3 - len(along)), *along
    return np.ones(math.prod(windows.kernel), np.float32), counts


@specialize("GlobalAveragePool")
def global_average_pool(site: Site, plain: Call) -> Call | None:
    """The mean of each channel, in float32."""
    AVERAGE.request()
    REDUCE.request()

    def call(x: NDArray) -> Any:
        shape = (*x.shape[:2], *(1,) * (x.ndim - 2))
        made = averaged(x, shape, site.threads) if x.ndim >= 3 else None
        return plain(x) if made is None else made

    return Capturable(call)


@specialize("ReduceMean")
def mean_of_channels(site: Site, plain: Call) -> Call | None:
    """The same, as exporters write it: a mean over all axes behind the channels'."""
    given = site.constant(1) if len(site.node.inputs) > 1 else None
    axes = site.attribute("axes", None) if given is None else given.reshape(-1).tolist()
    keeps = site.attribute("keepdims", 1)
    other = reduction(site, plain)
    if other is None or not axes:
        return None if other is None else Capturable(other)
    AVERAGE.request()

    def call(x: NDArray, *rest: NDArray) -> Any:
        made = None
        rank = x.ndim
        places = sorted(axis + rank if axis < 0 else axis for axis in axes)
        if rank >= 3 and places == list(range(2, rank)):
            shape = (*x.shape[:2], *(1,) * (rank - 2 if keeps else 0))
            made = averaged(x, shape, site.threads)
        return other(x, *rest) if made is None else made

    return Capturable(call)


def averaged(x: NDArray, shape: tuple[int, ...], threads: int) -> Launch | None:
    """Returns what computes the mean of each channel; ``None`` where numpy must do it."""
    if is_last(x) and x.dtype == F32:
        return _averaged_places(x, shape, threads)
    run = AVERAGE.run
    if run is None or not x.size or not fits(x):
        return None
    y = empty(shape)
    team = threads if x.size > SERIAL else 1
    return Launch(run, (x.reshape(y.size, -1), y.reshape(-1), team), y)


def _averaged_places(x: NDArray, shape: tuple[int, ...], threads: int) -> Launch | None:
    """Returns what computes the mean of all places of an image that has its channels last."""
    batch, channels, height, width = x.shape
    cut = cut_of((batch, height * width, channels), (1,), False, SUM, threads)
    run = REDUCE.run
    if run is None or cut is None:
        return None
    y = empty(shape)
    arguments = (
        channels_last(x).reshape(-1), y.reshape(-1), cut.shape, 1 / cut.count, 0, cut.threads,
    )  # fmt: skip
    return Launch(run, arguments, y)
