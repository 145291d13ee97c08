"""Sliding windows: the one description that convolution and pooling share."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from tenonnx.by_name import cacheable
from tenonnx.operators import Array, Namespace
from tenonnx_array.allocation import check_allocation

# Channels below which a convolution adds so many products one after the other at most: where
# vectors have more lanes than an image has channels, onnxruntime adds up each channel on its own.
# With more terms the largest error is 2.9 ulp instead of 1.2, which is onnxruntime's.
NARROW_CHANNELS, NARROW_CHAIN_TERMS = 16, 36


class Tap(NamedTuple):
    """One offset into the kernel along one axis, and the windows for which it hits the data."""

    offset: int
    windows: slice
    positions: slice


class Taps(NamedTuple):
    """One offset into the kernel, as indices to use after ``...``."""

    offset: tuple[int, ...]
    windows: tuple[slice, ...]
    positions: tuple[slice, ...]


# Elements of an axis that windows span, or that are between them or beside the data, up to which
# compiled code plans them: files may name any, and the products of two are floats of memory.
MAX_NEAR_ELEMENTS = 1 << 20


class Windows(NamedTuple):
    """The places of a kernel on the spatial axes (D1, ..., Dn) of an (N, C, D1, ..., Dn) array.

    Along an axis, window ``o`` reads the positions ``o * stride - begin + k * dilation`` for every
    ``k`` in ``range(kernel)``. Positions outside ``range(size)`` are padding, which no tap covers:
    nothing is ever padded by a copy.
    """

    size: tuple[int, ...]
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    begins: tuple[int, ...]
    ends: tuple[int, ...]
    output: tuple[int, ...]

    @property
    def axes(self) -> tuple[tuple[Tap, ...], ...]:
        """The taps of each axis; those that never hit the data are left out."""
        return tuple(tuple(self._taps(axis)) for axis in range(len(self.size)))

    def _offsets(self, axis: int) -> range:
        """Return the offsets between which those are that reach the data, if padding allows."""
        stride, dilation, begin = self.strides[axis], self.dilations[axis], self.begins[axis]
        # Of a kernel that its padding makes room for, only what can reach the data is looked at.
        reach = begin - (self.output[axis] - 1) * stride
        stop = min(self.kernel[axis], (self.size[axis] - 1 + begin) // dilation + 1)
        return range(max(0, -(-reach // dilation)), stop)

    def _hit(self, axis: int, offset: int) -> tuple[int, int]:
        """Return the first window whose tap hits the data, and the one after the last."""
        stride = self.strides[axis]
        first = offset * self.dilations[axis] - self.begins[axis]
        high = min(self.output[axis], (self.size[axis] - 1 - first) // stride + 1)
        return max(0, -(first // stride)), high

    def _taps(self, axis: int) -> Iterator[Tap]:
        stride, dilation, begin = self.strides[axis], self.dilations[axis], self.begins[axis]
        for offset in self._offsets(axis):
            low, high = self._hit(axis, offset)
            if low < high:
                first = offset * dilation - begin
                start, last = first + low * stride, first + (high - 1) * stride
                yield Tap(offset, slice(low, high), slice(start, last + 1, stride))

    def reached(self, axis: int) -> slice:
        """Return from which to which tap of an axis windows hit the data; the first if none does.

        Taps between them may miss it.
        """
        ends = 0, self.kernel[axis] - 1
        if all(int.__lt__(*self._hit(axis, offset)) for offset in ends):
            return slice(0, self.kernel[axis])
        offsets = self._offsets(axis)
        for first in offsets:
            if int.__lt__(*self._hit(axis, first)):
                hits = (n for n in reversed(offsets) if int.__lt__(*self._hit(axis, n)))
                return slice(first, next(hits) + 1)
        return slice(0, 1)

    @property
    def taps(self) -> tuple[Taps, ...]:
        """Every combination of the axes' taps, in the kernel's row-major order."""
        return _combined(self)

    @property
    def is_padded(self) -> bool:
        """Whether any window reaches outside the data."""
        if 0 in self.output:
            return True
        for size, kernel, stride, dilation, begin, _, count in zip(*self, strict=True):
            if begin > 0 or (count - 1) * stride + (kernel - 1) * dilation + 1 > size + begin:
                return True
        return False

    @property
    def is_whole(self) -> bool:
        """Whether there is a single window, which is the data."""
        return self.kernel == self.size and math.prod(self.output) == 1 and not self.is_padded

    @property
    def is_near(self) -> bool:
        """Whether products of its numbers with those of data in memory are 64-bit integers."""
        spans = [(taps - 1) * step for taps, step in zip(self.kernel, self.dilations, strict=True)]
        return max(*spans, *self.strides, *self.begins, *self.ends, 0) <= MAX_NEAR_ELEMENTS

    def chain(self, channels: int, group: int, most: int) -> int:
        """Return how many products to add one after the other, of ``most`` that are of use.

        Where an image has less channels than vectors have lanes, onnxruntime adds up each of them
        on its own: as few steps, so that no more digits are lost.
        """
        few = (
            group == 1
            and channels < NARROW_CHANNELS
            and len(self.kernel) == 2
            and min(self.kernel) > 1
        )
        return min(most, max(NARROW_CHAIN_TERMS, math.prod(self.kernel))) if few else most

    @property
    def around(self) -> tuple[tuple[int, int], ...]:
        """The padding before and after each axis for exactly these windows; a negative one cuts."""
        rows = zip(
            self.begins, self.output, self.strides, self.kernel, self.dilations, self.size,
            strict=True,
        )  # fmt: skip
        return tuple(
            [
                (begin, (count - 1) * stride + (kernel - 1) * dilation + 1 - size - begin)
                for begin, count, stride, kernel, dilation, size in rows
            ]
        )

    def part(self, start: int, stop: int) -> Windows:
        """Return the windows ``start`` to ``stop`` along the first axis alone."""
        return self._replace(
            begins=(self.begins[0] - start * self.strides[0], *self.begins[1:]),
            output=(stop - start, *self.output[1:]),
        )

    def counts(self, axis: int, *, padding: bool) -> Array:
        """Return how many taps of each window fall on data, or on data and declared padding."""
        begin, end = (self.begins[axis], self.ends[axis]) if padding else (0, 0)
        firsts = np.arange(self.output[axis]) * self.strides[axis] - self.begins[axis]
        taps = firsts[:, None] + np.arange(self.kernel[axis]) * self.dilations[axis]
        hits = (taps >= -begin) & (taps < self.size[axis] + end)
        return np.sum(hits, axis=1)

    def divisors(self, *, padding: bool) -> Array:
        """Return by what the sum of each window is divided; 1 where padding alone is seen."""
        along = [self.counts(axis, padding=padding) for axis in range(len(self.size))]
        return np.maximum(functools.reduce(np.multiply.outer, along, np.ones((), np.int64)), 1)


@functools.lru_cache(maxsize=1024)
def _combined(windows: Windows) -> tuple[Taps, ...]:
    """Return every combination of the axes' taps; an array kernel asks in each run."""
    combinations = itertools.product(*windows.axes)
    return tuple(Taps(*map(tuple, zip(*taps, strict=True))) for taps in combinations)


def fold(xp: Namespace, columns: Array, windows: Windows) -> Array:
    """Add up what the windows say of each position.

    Args:
        xp: The array namespace.
        columns: Shape (..., *kernel, *output).
        windows: The windows; ``size`` is the result's.

    Returns:
        An array of shape (..., *size).
    """
    lead = columns.shape[: columns.ndim - 2 * len(windows.size)]
    y = xp.zeros((*lead, *windows.size), columns.dtype)
    for offset, where, positions in windows.taps:
        y[(..., *positions)] += columns[(slice(None),) * len(lead) + offset + where]
    return y


class Placement(NamedTuple):
    """The attributes of an operator that place its windows in data of any size."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    begins: tuple[int, ...]
    ends: tuple[int, ...]
    auto_pad: str
    ceil: bool

    def at(self, size: tuple[int, ...]) -> Windows:
        """Return the windows of data of a size."""
        kernel, strides, dilations, begins, ends, auto_pad, ceil = self
        if auto_pad.startswith("SAME"):
            each = zip(size, kernel, strides, dilations, strict=True)
            solved = [_same(n, taps, stride, step, auto_pad) for n, taps, stride, step in each]
            begins, ends, output = zip(*solved, strict=True) if solved else ((), (), ())
        else:
            rows = zip(size, kernel, strides, dilations, begins, ends, strict=True)
            output = tuple([_count(ceil, *row) for row in rows])
        check_allocation(np, output, np.float32)
        return Windows(size, kernel, strides, dilations, begins, ends, output)


@functools.lru_cache(maxsize=1024)
def placement(
    kernel: tuple[int, ...],
    strides: tuple[int, ...] | None = None,
    dilations: tuple[int, ...] | None = None,
    pads: tuple[int, ...] | None = None,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
) -> Placement:
    """Return the placement of windows that attributes of Conv and the pooling operators describe.

    ``auto_pad`` other than NOTSET wins over ``pads``. With ``ceil_mode`` a last window may reach
    beyond the padding, but none starts in the padding at the end.

    Raises:
        ValueError: Attributes of the wrong length or range.
    """
    _check_auto_pad(auto_pad)
    rank = len(kernel)
    kernel = _expect(kernel, rank, 1, "kernel_shape")
    strides = _expect(strides or (1,) * rank, rank, 1, "strides")
    dilations = _expect(dilations or (1,) * rank, rank, 1, "dilations")
    pads = _expect(pads or (0,) * (2 * rank), 2 * rank, 0, "pads")
    if auto_pad == "VALID":
        pads, ceil_mode = (0,) * (2 * rank), 0
    return Placement(
        kernel, strides, dilations, pads[:rank], pads[rank:], auto_pad, bool(ceil_mode)
    )


def place(
    size: tuple[int, ...],
    kernel: tuple[int, ...],
    *,
    strides: tuple[int, ...] | None = None,
    dilations: tuple[int, ...] | None = None,
    pads: tuple[int, ...] | None = None,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
) -> Windows:
    """Return the windows of data of a size, for attributes as ``placement`` takes them.

    Raises:
        ValueError: Attributes of the wrong length or range, or the kernel is larger than the data.
    """
    if len(kernel) != len(size):
        _expect(kernel, len(size), 1, "kernel_shape")
    return placement(kernel, strides, dilations, pads, auto_pad, ceil_mode).at(size)


@cacheable
def place_transposed(
    size: tuple[int, ...],
    kernel: tuple[int, ...],
    strides: tuple[int, ...] | None = None,
    dilations: tuple[int, ...] | None = None,
    pads: tuple[int, ...] | None = None,
    auto_pad: str = "NOTSET",
    output_padding: tuple[int, ...] | None = None,
    output_shape: tuple[int, ...] | None = None,
) -> Windows:
    """Return the windows whose ``output`` is ``size``; their ``size`` is the result of going back.

    Along an axis, ``total_padding = stride * (n - 1) + output_padding + extent - result``.

    Raises:
        ValueError: Attributes of the wrong length or range, or nothing is left of an axis.
    """
    _check_auto_pad(auto_pad)
    rank = len(size)
    _expect(kernel, rank, 1, "kernel_shape")
    strides = _expect(strides or (1,) * rank, rank, 1, "strides")
    dilations = _expect(dilations or (1,) * rank, rank, 1, "dilations")
    extra = _expect(output_padding or (0,) * rank, rank, 0, "output_padding")
    pads = _expect(pads or (0,) * (2 * rank), 2 * rank, 0, "pads")
    full = [
        stride * (n - 1) + more + (k - 1) * dilation + 1
        for n, stride, more, k, dilation in zip(
            size, strides, extra, kernel, dilations, strict=True
        )
    ]
    if output_shape or auto_pad.startswith("SAME"):
        same = tuple(n * stride for n, stride in zip(size, strides, strict=True))
        target = _expect(output_shape[-rank:], rank, 1, "output_shape") if output_shape else same
        shares = [split(max(f - t, 0), auto_pad) for f, t in zip(full, target, strict=True)]
        begins, ends = zip(*shares, strict=True)
    else:
        if auto_pad == "VALID":
            pads = (0,) * (2 * rank)
        begins, ends = pads[:rank], pads[rank:]
        target = tuple(f - b - e for f, b, e in zip(full, begins, ends, strict=True))
    if min(target, default=1) < 1:
        raise ValueError(f"expected an output of at least 1 along each axis, found {target}")
    check_allocation(np, target, np.float32)
    # No padding explains a larger output_shape; onnxruntime refuses it, too.
    most = tuple(f + stride - 1 for f, stride in zip(full, strides, strict=True))
    if any(t > limit for t, limit in zip(target, most, strict=True)):
        raise ValueError(f"expected an output_shape of at most {most}, found {target}")
    return Windows(target, kernel, strides, dilations, begins, ends, size)


def _count(
    ceil: bool, n: int, kernel: int, stride: int, dilation: int, begin: int, end: int
) -> int:
    """Return how many windows an axis of ``n`` elements has."""
    extent = (kernel - 1) * dilation + 1
    steps = n + begin + end - extent
    count = (-(-steps // stride) if ceil else steps // stride) + 1
    if n and count < 1:
        raise ValueError(
            f"expected a kernel that spans at most the padded size {n + begin + end} of a spatial "
            f"axis, found one that spans {extent}"
        )
    return max(min(count, -(-(n + begin) // stride)) if ceil else count, 0)


def _same(n: int, kernel: int, stride: int, dilation: int, auto_pad: str) -> tuple[int, int, int]:
    extent = (kernel - 1) * dilation + 1
    count = -(-n // stride)
    return *split(max((count - 1) * stride + extent - n, 0), auto_pad), count


def split(total: int, auto_pad: str) -> tuple[int, int]:
    """Share padding between both sides; an odd element goes to the end for SAME_UPPER."""
    half = total // 2
    return (half, total - half) if auto_pad == "SAME_UPPER" else (total - half, half)


def _check_auto_pad(auto_pad: str) -> None:
    if auto_pad not in ("NOTSET", "", "VALID", "SAME_UPPER", "SAME_LOWER"):
        raise ValueError(
            f"expected auto_pad to be NOTSET, SAME_UPPER, SAME_LOWER or VALID, found {auto_pad!r}"
        )


def _expect(values: Sequence[int], length: int, least: int, name: str) -> tuple[int, ...]:
    if len(values) != length or min(values, default=least) < least:
        raise ValueError(
            f"expected {name} to be {length} numbers of at least {least}, found {list(values)}"
        )
    return tuple(values)
