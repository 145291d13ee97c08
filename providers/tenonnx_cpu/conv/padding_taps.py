"""Taps that see nothing but padding, and convolutions without them.

A kernel of 3 x 3 on one line of an image, or one whose dilation is wider than the image, has most
of its taps there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from tenonnx.provider import HOST
from tenonnx_array.windows import Windows
from tenonnx_cpu.kernel_selection import NDArray

if TYPE_CHECKING:
    from tenonnx.weights.weight import Weight


# The first tap of each axis that sees the image, and the one after the last; `None` for all taps.
Reached: TypeAlias = "tuple[tuple[int, int], ...] | None"


def reached(windows: Windows) -> Reached:
    """Return which taps see the image in some window."""
    sizes, kernel, strides, dilations, begins, _, output = windows
    for size, taps, stride, step, begin, count in zip(
        sizes, kernel, strides, dilations, begins, output, strict=True
    ):
        # Of all taps the first one comes last to the image's beginning, the last one first to its
        # end; and windows do not step over it.
        last_of_first, first_of_last = (count - 1) * stride - begin, (taps - 1) * step - begin
        if stride > size or last_of_first < 0 or first_of_last >= size:
            break
    else:
        return None
    seen = [windows.reached(axis) for axis in range(len(sizes))]
    if all(each == slice(0, taps) for each, taps in zip(seen, kernel, strict=True)):
        return None
    return tuple((each.start, each.stop) for each in seen)


def without_others(windows: Windows, taps: tuple[tuple[int, int], ...]) -> Windows:
    """Return windows of these taps alone."""
    sides = zip(windows.kernel, windows.dilations, taps, strict=True)
    cut = [(first * step, (kernel - stop) * step) for kernel, step, (first, stop) in sides]
    return windows._replace(
        kernel=tuple(stop - first for first, stop in taps),
        begins=tuple(begin - own for begin, (own, _) in zip(windows.begins, cut, strict=True)),
        ends=tuple(end - own for end, (_, own) in zip(windows.ends, cut, strict=True)),
    )


def kept(weight: Weight, taps: tuple[tuple[int, int], ...]) -> NDArray:
    """Return the weights of these taps, the last ones that there are, kept by their registry."""
    made = weight.derive(
        f"conv-taps:{named_taps(taps)}", lambda: np.ascontiguousarray(taken(weight.on(HOST), taps))
    )
    return made.on(HOST)  # type: ignore[no-any-return]  # the host's are numpy's


def taken(w: NDArray, taps: Reached) -> NDArray:
    """Return a view of these taps of weights ``(K, C, *)``."""
    if taps is None:
        return w
    kept: Any = (..., *(slice(first, stop) for first, stop in taps[2 - w.ndim :]))
    return w[kept]  # type: ignore[no-any-return]  # numpy's


def named_taps(taps: Reached) -> str:
    """Return what the registry calls these taps."""
    return ",".join(f"{first}-{stop}" for first, stop in taps or ())
