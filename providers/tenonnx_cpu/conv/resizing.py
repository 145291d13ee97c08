"""Resize: of float32 images along their last two axes on a kernel of its own.

Other arrays are resized by sums of a few elements along each axis, or by moving elements.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from tenonnx.by_name import cacheable
from tenonnx_array.interpolate import Axis, coordinates
from tenonnx_array.resize import Readings, changed_axes, reading_of, readings_of
from tenonnx_cpu.buffers import F32, UNREAD, contiguous, empty, frozen
from tenonnx_cpu.capture.capturable import where_constant
from tenonnx_cpu.capture.launch import Launch
from tenonnx_cpu.data_movement.indexed import MOVE_ELEMENTS, pick_columns
from tenonnx_cpu.elementwise.kernels.operations import (
    FLOAT32,
    FLOAT64,
    HALVES,
    INTEGERS,
    SIZES,
    UINT64,
    variant,
)
from tenonnx_cpu.elementwise.typed import DTYPES, code_of
from tenonnx_cpu.jit.runtime import JitKernel
from tenonnx_cpu.jit.scratch import floats, pieces
from tenonnx_cpu.jit.threads.sharing import shared_out
from tenonnx_cpu.kernel_selection import Call, NDArray, Site, specialize
from tenonnx_cpu.matmul.product import fits

RESIZE = JitKernel("conv.resize", "resize_f32")
RESAMPLE = JitKernel("conv.taps", "resample")

# Elements up to which one thread is done before others have started.
MAX_SERIAL_RESIZED_ELEMENTS = 1 << 15

# Elements of the result in a task, or one line if that has more.
PER_TASK = 1 << 13

# Results along an axis up to which what they read is kept: some KiB.
MAX_KEPT_LENGTH = 1 << 11

RESIZE_ATTRIBUTES = (
    "antialias", "axes", "coordinate_transformation_mode", "cubic_coeff_a", "exclude_outside",
    "keep_aspect_ratio_policy", "mode", "nearest_mode",
)  # fmt: skip


Attributes: TypeAlias = tuple[tuple[str, Any], ...]


@specialize("Resize")
def specialize_resize(site: Site, plain: Call) -> Call | None:
    """Take all but regions of an image."""
    given = {name: site.attribute(name, None) for name in RESIZE_ATTRIBUTES}
    attributes: dict[str, Any] = {
        name: tuple(value) if name == "axes" else value
        for name, value in given.items()
        if value is not None
    }
    mode = attributes.get("coordinate_transformation_mode")
    if (site.node.version or 1) < 11 or mode == "tf_crop_and_resize":
        return None
    RESIZE.request()
    if site.dtype(0) != F32 or attributes.get("mode") == "cubic" or attributes.get("antialias"):
        RESAMPLE.request()
    if site.dtype(0) != F32 and attributes.get("mode", "nearest") == "nearest":
        MOVE_ELEMENTS.request()
    call = ResizeCall(tuple(attributes.items()), site.threads, plain)
    return where_constant(site, (2, 3), call)


@cacheable
@dataclass(frozen=True, eq=False)
class ResizeCall:
    """Resizes images.

    Attributes:
        attributes: The node's, by name.
        threads: How many to use at most.
        plain: Computes the same from the same inputs.
    """

    attributes: Attributes
    threads: int
    plain: Call

    def __call__(
        self, x: NDArray, roi: Any = None, scales: NDArray | None = None,
        sizes: NDArray | None = None,
    ) -> Any:  # fmt: skip
        """Return a launch, or the result."""
        run = RESIZE.run
        by = () if scales is None else tuple(scales.tolist())
        to = () if sizes is None else tuple(sizes.tolist())
        x = contiguous(x) if not x.dtype.hasobject else x
        found = cut_of(self.attributes, x.shape, by, to) if run is not None and fits(x) else None
        if found is None:
            is_nearest = dict(self.attributes).get("mode", "nearest") == "nearest"
            made = self._nearest(x, by, to) if is_nearest else self._others(x, by, to)
            return self.plain(x, roi, scales, sizes) if made is None else made
        y = empty(found.output)
        team = self.threads if y.size > MAX_SERIAL_RESIZED_ELEMENTS else 1
        memory = floats(2 * found.output[-1] * team)
        arguments = x.reshape(-1), y.reshape(-1), *found.places, found.numbers, memory, team
        return Launch(run, arguments, y)

    def _nearest(self, x: NDArray, by: tuple[float, ...], to: tuple[int, ...]) -> Any:
        """Return a launch that picks elements; ``None`` if numpy does it."""
        found = nearest_places(self.attributes, x.shape, by, to)
        if found is None:
            return None
        output, first, places = found
        made = pick_columns(x.reshape(math.prod(x.shape[:first]), -1), places, self.threads)
        if made is None:
            return None
        return made._replace(result=made.result.reshape(output), otherwise=self.plain)

    def _others(self, x: NDArray, by: tuple[float, ...], to: tuple[int, ...]) -> Any:
        """Return a launch for other types and modes; ``None`` if numpy does it."""
        run, source = RESAMPLE.run, code_of(x.dtype)
        if run is None or source is None or source == UINT64:
            return None
        found = taps_cut(self.attributes, source, x.shape, by, to, self.threads)
        if found is None:
            return None
        y = empty(found.output, x.dtype)
        (memory,) = pieces(((max(found.memory, 1),), np.uint8))
        flat = (each.reshape(-1).view(np.uint8) for each in (x, y))
        given, result = flat
        arguments = (given, *found.places, result, memory, found.numbers, self.threads)
        return Launch(run, arguments, y)


@functools.lru_cache(maxsize=64)
def nearest_places(
    attributes: Attributes,
    shape: tuple[int, ...],
    scales: tuple[float, ...],
    sizes: tuple[int, ...],
) -> tuple[tuple[int, ...], int, NDArray] | None:
    """Return where elements of the result come from; ``None`` if that is numpy's.

    Returns:
        The result's shape; the first axis that changes; and places in what an array has from that
        axis on.
    """
    along = _along(attributes, shape, scales, sizes)
    if along is None or not along or 0 in shape:
        return None
    first = min(along)
    places = np.zeros((), np.int64)
    for axis in range(first, len(shape)):
        own = along[axis][0] if axis in along else np.arange(shape[axis])
        places = places[..., None] * shape[axis] + own
    return (*shape[:first], *places.shape), first, frozen(places.reshape(-1))


def _along(
    attributes: Attributes,
    shape: tuple[int, ...],
    scales: tuple[float, ...],
    sizes: tuple[int, ...],
) -> Readings | None:
    """Return what is read along axes; ``None`` if it is wrong, or something is outside."""
    asked = np.array(scales, np.float32) if scales else None, np.array(sizes) if sizes else None
    try:
        image = np.ndarray(shape, np.float32, UNREAD, strides=(0,) * len(shape))
        along, outside = readings_of(np, image, None, *asked, **dict(attributes))
    except ValueError:
        return None
    return None if outside else along


class ResizeLayout(NamedTuple):
    """The resizing of images of a shape.

    Attributes:
        output: The result's shape.
        places: Lines, their weights, columns and theirs, as ``resize_f32`` takes them.
        numbers: Its sizes.
    """

    output: tuple[int, ...]
    places: tuple[NDArray, ...]
    numbers: NDArray


def cut_of(
    attributes: Attributes,
    shape: tuple[int, ...],
    scales: tuple[float, ...],
    sizes: tuple[int, ...],
) -> ResizeLayout | None:
    """Return how the kernel resizes images of a shape; ``None`` if it does not."""
    rank, given = len(shape), dict(attributes)
    if rank < 2 or 0 in shape:
        return None
    asked = np.array(scales, np.float32) if scales else None, np.array(sizes) if sizes else None
    try:
        axes = changed_axes(shape, None, *asked, **given)
        if not axes or min(axes) < rank - 2:
            return None
        lines, columns = (_line(attributes, axes.get(n), shape[n]) for n in (rank - 2, rank - 1))
    except ValueError:
        return None
    if not 1 <= lines.taps <= 2 or not 1 <= columns.taps <= 2:
        return None
    (height, width), out_height, out_width = shape[-2:], lines.length, columns.length
    if not out_height or not out_width:
        return None
    together = max(1, PER_TASK // out_width)
    tasks = math.prod(shape[:-2]) * -(-out_height // together)
    numbers = (
        height, width, out_height, out_width, together, lines.taps, columns.taps, tasks,
    )  # fmt: skip
    return ResizeLayout(
        (*shape[:-2], out_height, out_width),
        (lines.places, lines.weights, columns.places, columns.weights),
        frozen(np.array(numbers, np.int64)),
    )


class ResizedLine(NamedTuple):
    """The elements of an axis that results read.

    Attributes:
        taps: How many make a result.
        length: How many results there are.
        places: They, flat: the first of each result, then the second ones.
        weights: Theirs.
    """

    taps: int
    length: int
    places: NDArray
    weights: NDArray


def _line(attributes: Attributes, axis: Axis | None, length: int) -> ResizedLine:
    """Return what is read along an axis, ``None`` for one that stays.

    Images of other shapes often share the length of one axis: what is read is kept, if it is short.

    Raises:
        ValueError: A mode is unknown.
    """
    resized = length if axis is None else axis.resized
    read = _read if resized <= MAX_KEPT_LENGTH else _read.__wrapped__
    return read(attributes, axis, length)


@functools.lru_cache(maxsize=64)
def _read(attributes: Attributes, axis: Axis | None, length: int) -> ResizedLine:
    given = dict(attributes)
    if axis is None:
        places, weights = np.arange(length), None
    else:
        dtype = np.float32 if given.get("mode", "nearest") == "nearest" else np.float64
        mode = given.get("coordinate_transformation_mode", "half_pixel")
        places, weights = reading_of(coordinates(axis, mode, dtype), axis, **given)
    places = np.atleast_2d(places)
    weights = np.ones(places.shape) if weights is None else weights
    taps, count = len(places), places.shape[-1]
    flat = frozen(np.array(places, np.uint32).reshape(-1))
    return ResizedLine(taps, count, flat, frozen(np.array(weights, np.float32).reshape(-1)))


@dataclass(frozen=True)
class TapsCut:
    """The resizing of arrays of any type, axis by axis.

    Attributes:
        output: The result's shape.
        places: Of the elements that are read, and their weights.
        numbers: As ``conv.kernels.TAPS_FIELDS`` says.
        memory: Bytes between passes.
    """

    output: tuple[int, ...]
    places: tuple[NDArray, NDArray]
    numbers: NDArray
    memory: int


@functools.lru_cache(maxsize=64)
def taps_cut(
    attributes: Attributes,
    source: int,
    shape: tuple[int, ...],
    scales: tuple[float, ...],
    sizes: tuple[int, ...],
    threads: int,
) -> TapsCut | None:
    """Return how arrays of a type and a shape are resized; ``None`` if that is numpy's."""
    along = _along(attributes, shape, scales, sizes)
    if not along or any(weight is None for _, weight in along.values()):
        return None
    if 0 in shape or any(0 in each[0].shape for each in along.values()):
        return None
    wide, widens = source not in (*HALVES, FLOAT32), source not in (FLOAT32, FLOAT64)
    width, count = 8 if wide else 4, math.prod(shape)
    # Elements of one line are found one by one: the fewer lines of them, the better.
    ratios = {axis: where.shape[-1] / shape[axis] for axis, (where, _) in along.items()}
    order = sorted(along, key=lambda axis: (ratios[axis], axis if ratios[axis] < 1 else -axis))
    some = _Passes(list(shape), count * width * widens)
    for axis in order:
        some.add(axis, along[axis], width, widens or axis != order[-1], threads)
    sums = FLOAT64 if wide else FLOAT32
    read, made = variant(sums, source)[1], variant(source, sums)[0]
    ends = np.iinfo(DTYPES[source]) if source in INTEGERS else None
    numbers = [
        *(len(order), widens, wide, read, SIZES[source], made, count, math.prod(some.lengths)),
        *(ends is not None, bool(dict(attributes).get("antialias"))),
        *((int(ends.min), int(ends.max)) if ends else (0, 0)),
        *some.numbers,
    ]
    joined = frozen(np.concatenate(some.places)), frozen(np.concatenate(some.weights))
    return TapsCut(tuple(some.lengths), joined, frozen(np.array(numbers, np.int64)), some.memory)


@dataclass
class _Passes:
    """The passes along axes, as far as they are known.

    Attributes:
        lengths: The array's shape after the last of them.
        memory: Bytes that they need.
        places: The elements that each of them reads.
        weights: Their weights.
        numbers: ``conv.kernels.TAPS_PASS`` of each.
    """

    lengths: list[int]
    memory: int
    places: list[NDArray] = field(default_factory=list)
    weights: list[NDArray] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)

    def add(self, axis: int, reading: Any, width: int, goes_on: bool, threads: int) -> None:
        """Add the pass along an axis, whose sums of ``width`` bytes are kept if it ``goes_on``."""
        where, weight = reading
        length, resized = self.lengths[axis], where.shape[-1]
        inner = math.prod(self.lengths[axis + 1 :])
        lines = math.prod(self.lengths[:axis]) * (resized if inner > 1 else 1)
        first = sum(each.size for each in self.places)
        work = len(where) * resized * math.prod(self.lengths) // length
        grain, _ = shared_out(lines, work, MAX_SERIAL_RESIZED_ELEMENTS, threads)
        target = self.memory if goes_on else -1
        self.numbers += [length, inner, resized, len(where), first, target, lines, grain]
        self.numbers.append(-(-lines // grain))
        self.lengths[axis] = resized
        self.memory += math.prod(self.lengths) * width * goes_on
        self.places.append(where.reshape(-1).astype(np.int64))
        self.weights.append(weight.reshape(-1).astype(np.float64))
