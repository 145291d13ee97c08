"""Windows of an image as numbers, for the kernels that plan other kernels' tasks."""

from __future__ import annotations

from typing import Any, NamedTuple

from tenonnx_cpu.jit.compiling import helper, size

# The numbers of `tenonnx_array.windows.Windows` with two axes, in order.
WINDOW_SIZES = (size,) * 14


class Geometry(NamedTuple):
    """An image and its windows: see ``tenonnx_array.windows.Windows``."""

    height: Any
    width: Any
    kernel_y: Any
    kernel_x: Any
    stride_y: Any
    stride_x: Any
    step_y: Any
    step_x: Any
    top: Any
    left: Any
    bottom: Any
    right: Any
    out_height: Any
    out_width: Any


@helper
def geometry_of(windows: Any) -> Any:
    """Return windows by name; where each is one element and all are in order, of a line."""
    w = Geometry(*windows)
    if not is_direct(w):
        return w
    count = w.height * w.width
    return Geometry(1, count, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 1, count)


@helper
def is_direct(w: Any) -> Any:
    """Return whether every window is one element, and all are in order."""
    single = w.kernel_y * w.kernel_x == 1 and w.stride_y * w.stride_x == 1
    whole = w.height == w.out_height and w.width == w.out_width
    return single and whole and w.top == 0 and w.left == 0


@helper
def is_line(w: Any) -> Any:
    """Return whether the image has one line, and so has the result."""
    return w.height == 1 and w.out_height == 1 and w.kernel_y == 1


@helper
def is_padded(w: Any) -> Any:
    """Return whether a window reaches outside the image."""
    lines = (w.out_height - 1) * w.stride_y + (w.kernel_y - 1) * w.step_y + 1
    columns = (w.out_width - 1) * w.stride_x + (w.kernel_x - 1) * w.step_x + 1
    return w.top > 0 or w.left > 0 or lines > w.height + w.top or columns > w.width + w.left


@helper
def store(numbers: Any, values: Any) -> None:
    """Write the numbers of a tuple to an array."""
    for n in range(len(values)):
        numbers[n] = values[n]
