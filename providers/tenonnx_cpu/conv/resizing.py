"""Resize of float32 images along their last two axes, nearest and linear, on a kernel."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from tenonnx.records import record
from tenonnx_array.resize import Readings, readings_of
from tenonnx_cpu.buffers import contiguous, empty
from tenonnx_cpu.capture.capturable import where_constant
from tenonnx_cpu.capture.launch import Launch
from tenonnx_cpu.jit.runtime import JitKernel
from tenonnx_cpu.jit.scratch import floats
from tenonnx_cpu.kernel_selection import F32, Call, NDArray, Site, specialize
from tenonnx_cpu.matmul.product import fits

RESIZE = JitKernel("conv.resize", "resize_f32")

SERIAL = 1 << 15
"""Elements up to which one thread is done before others have started."""

PER_TASK = 1 << 13
"""Elements of the result in a task, or one line if that has more."""

ATTRIBUTES = (
    "antialias", "axes", "coordinate_transformation_mode", "cubic_coeff_a", "exclude_outside",
    "keep_aspect_ratio_policy", "mode", "nearest_mode",
)  # fmt: skip


@specialize("Resize")
def specialize_resize(site: Site, plain: Call) -> Call | None:
    """Resizes by one or two elements along each axis; the rest is left to numpy."""
    given = {name: site.attribute(name, None) for name in ATTRIBUTES}
    attributes: dict[str, Any] = {
        name: tuple(value) if name == "axes" else value
        for name, value in given.items()
        if value is not None
    }
    modes = attributes.get("mode", "nearest"), attributes.get("coordinate_transformation_mode")
    if (site.node.version or 1) < 11 or modes[0] == "cubic" or modes[1] == "tf_crop_and_resize":
        return None
    RESIZE.request()
    threads = site.threads

    @functools.lru_cache(maxsize=64)
    def cut(
        shape: tuple[int, ...], scales: tuple[float, ...], sizes: tuple[int, ...]
    ) -> Cut | None:
        asked = np.array(scales, np.float32) if scales else None, np.array(sizes) if sizes else None
        try:
            image = np.broadcast_to(np.float32(0), shape)
            return cut_of(shape, readings_of(np, image, None, *asked, **attributes)[0])
        except ValueError:
            return None

    def call(
        x: NDArray, roi: Any = None, scales: NDArray | None = None, sizes: NDArray | None = None
    ) -> Any:
        run = RESIZE.run
        x = contiguous(x) if x.dtype == F32 else x
        if run is None or not fits(x):
            return plain(x, roi, scales, sizes)
        by = () if scales is None else tuple(scales.tolist())
        to = () if sizes is None else tuple(sizes.tolist())
        found = cut(x.shape, by, to)
        if found is None:
            return plain(x, roi, scales, sizes)
        y = empty(found.output)
        team = threads if y.size > SERIAL else 1
        memory = floats(2 * found.output[-1] * team)
        arguments = x.reshape(-1), y.reshape(-1), *found.places, found.numbers, memory, team
        return Launch(run, arguments, y)

    return where_constant(site, (2, 3), call)


@record
class Cut:
    """The resizing of images of a shape.

    Attributes:
        output: The result's shape.
        places: Lines, their weights, columns and theirs, as ``resize_f32`` takes them.
        numbers: Its sizes.
    """

    output: tuple[int, ...]
    places: tuple[NDArray, ...]
    numbers: NDArray


def cut_of(shape: tuple[int, ...], along: Readings) -> Cut | None:
    """Returns how the kernel resizes images of a shape; ``None`` if it does not."""
    rank = len(shape)
    if rank < 2 or 0 in shape or not along or min(along) < rank - 2:
        return None
    lines, columns = (_read(along.get(axis), shape[axis]) for axis in (rank - 2, rank - 1))
    if not 1 <= len(lines[0]) <= 2 or not 1 <= len(columns[0]) <= 2:
        return None
    (height, width), (out_height, out_width) = shape[-2:], (a[0].shape[1] for a in (lines, columns))
    if not out_height or not out_width:
        return None
    together = max(1, PER_TASK // out_width)
    tasks = math.prod(shape[:-2]) * -(-out_height // together)
    numbers = (
        height, width, out_height, out_width, together, len(lines[0]), len(columns[0]), tasks,
    )  # fmt: skip
    places = tuple(
        np.ascontiguousarray(array, kind).reshape(-1)
        for pair in (lines, columns)
        for array, kind in zip(pair, (np.uint32, np.float32), strict=True)
    )
    return Cut((*shape[:-2], out_height, out_width), places, np.array(numbers, np.int64))


def _read(reading: Any, length: int) -> tuple[NDArray, NDArray]:
    """Returns places and weights, both (taps, length); of an axis that stays, its own."""
    places, weights = (np.arange(length), None) if reading is None else reading
    places = np.atleast_2d(places)
    return places, np.ones(places.shape) if weights is None else weights
