"""Tensors framed by padding or masked to a triangle: Pad, CenterCropPad, Trilu."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numpy.lib.array_utils import normalize_axis_tuple

from tenonnx.operators import Array, Namespace, OperatorTable
from tenonnx_array.allocation import check_allocation

table = OperatorTable()
op = table.op


@op("Pad", since=18, host=(1, 2, 3), shapes="pads: n; axes: m; constant_value: | 1")
def pad(
    xp: Namespace,
    data: Array,
    pads: Array,
    constant_value: Array | None = None,
    axes: Array | None = None,
    *,
    mode: str = "constant",
) -> Array:
    """Pad the ends of ``axes``, or crop them where ``pads`` is negative.

    Cropping comes first: edge, reflect and wrap see what is left. ``constant_value`` has one
    element and defaults to 0, False or the empty string.

    Raises:
        ValueError: ``constant_value`` has not one element.
    """
    if constant_value is not None and constant_value.size != 1:
        raise ValueError(f"expected one constant_value, found {constant_value.size}")
    value = blank(data.dtype) if constant_value is None else constant_value.item()
    named = None if axes is None else axes.ravel().tolist()
    return _pad(xp, data, pads.ravel().tolist(), named, mode, value)


@op("Pad", since=11, host=(1, 2), shapes="pads: n; constant_value: | 1")
def pad_11(
    xp: Namespace,
    data: Array,
    pads: Array,
    constant_value: Array | None = None,
    *,
    mode: str = "constant",
) -> Array:
    return pad(xp, data, pads, constant_value, mode=mode)


@op("Pad", since=2)
def pad_2(
    xp: Namespace, data: Array, *, pads: Sequence[int], mode: str = "constant", value: float = 0.0
) -> Array:
    return _pad(xp, data, pads, None, mode, value)


@op("Pad")
def pad_1(
    xp: Namespace,
    data: Array,
    *,
    paddings: Sequence[int],
    mode: str = "constant",
    value: float = 0.0,
) -> Array:
    return _pad(xp, data, paddings, None, mode, value)


def blank(dtype: Any) -> Any:
    """The default value of padding: 0, which is False as a bool, or the empty string."""
    return "" if dtype.kind == "O" else 0


def _pad(
    xp: Namespace,
    data: Array,
    pads: Sequence[int],
    axes: Sequence[int] | None,
    mode: str,
    value: Any,
) -> Array:
    axes = range(data.ndim) if axes is None else normalize_axis_tuple(axes, data.ndim)
    if len(pads) != 2 * len(axes):
        raise ValueError(
            f"expected a begin and an end for {len(axes)} axes, found pads {list(pads)}"
        )
    widths = [(0, 0)] * data.ndim
    for axis, before, after in zip(axes, pads, pads[len(axes) :], strict=False):
        widths[axis] = (before, after)
    return _frame(xp, data, widths, mode, value)


def _frame(
    xp: Namespace, data: Array, widths: Sequence[tuple[int, int]], mode: str, value: Any
) -> Array:
    shape = [b + n + a for n, (b, a) in zip(data.shape, widths, strict=True)]
    kept = [(max(0, -b), n - max(0, -a)) for n, (b, a) in zip(data.shape, widths, strict=True)]
    # What is left of an axis may be less than nothing: padding at its other end is removed, too.
    short = any(start > stop for start, stop in kept)
    if min(shape, default=0) < 0 or (short and mode != "constant" and 0 not in shape):
        raise ValueError(f"pads {list(widths)} remove more than the shape {data.shape} has")
    data = data[tuple(slice(start, max(start, stop)) for start, stop in kept)]
    if list(data.shape) == shape and not short:
        return data
    check_allocation(xp, shape, data.dtype)
    if mode != "constant" and 0 not in shape:
        widths = [(max(0, b), max(0, a)) for b, a in widths]
        if mode == "reflect" and any(max(w) >= n for w, n in zip(widths, data.shape, strict=True)):
            raise ValueError(
                f"expected pads of reflect to be less than the sizes {list(data.shape)} that are "
                f"left, found {widths}"
            )
        return xp.pad(data, widths, mode=mode)
    fresh = xp.zeros(shape, data.dtype) if value == 0 else xp.full(shape, value, data.dtype)
    if short or not data.size:
        return fresh
    where = tuple(
        slice(max(0, b), max(0, b) + n) for n, (b, _) in zip(data.shape, widths, strict=True)
    )
    fresh[where] = data
    return fresh


@op("CenterCropPad", since=18, host=(1,), shapes="shape: n")
def center_crop_pad(
    xp: Namespace, data: Array, shape: Array, *, axes: Sequence[int] | None = None
) -> Array:
    """Crop or pad ``axes`` to ``shape``; of an odd difference the larger half is at the end."""
    axes = normalize_axis_tuple(range(data.ndim) if axes is None else axes, data.ndim)
    widths = [(0, 0)] * data.ndim
    for axis, target in zip(axes, shape.tolist(), strict=True):
        missing = target - data.shape[axis]
        before = abs(missing) // 2 * (1 if missing > 0 else -1)
        widths[axis] = (before, missing - before)
    return _frame(xp, data, widths, "constant", blank(data.dtype))


@op("Trilu", since=14, host=(1,))
def trilu(xp: Namespace, x: Array, k: Array | None = None, *, upper: int = 1) -> Array:
    diagonal = 0 if k is None else int(k.item())
    rows, columns = x.shape[-2:]
    below = xp.tri(rows, columns, diagonal - 1 if upper else diagonal, dtype=bool)
    rest = xp.full((), blank(x.dtype), x.dtype)
    return xp.where(below, rest, x) if upper else xp.where(below, x, rest)
