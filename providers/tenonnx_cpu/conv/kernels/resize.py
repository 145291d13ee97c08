"""Images resized: each line from one or two lines, each element of those from one or two."""

from __future__ import annotations

from typing import Any

from tenonnx_cpu.jit.compiling import Contract, In, Out, f32, helper, i64, kernel, size, u32
from tenonnx_cpu.jit.threads.parallel_for import parallel


@parallel
def resize_lines(arguments: Any, task: Any, worker: Any) -> None:
    """Make some lines of one plane of the result.

    A line of the image is widened once, into one of two that are kept, however many read it.
    """
    x, y, lines, line_weights, columns, column_weights, sizes, memory = arguments
    height, width, out_height, out_width, together = sizes[:5]
    line_taps, column_taps = sizes[5], sizes[6]
    bands = -(-out_height // together)
    plane, first = task // bands, task % bands * together
    if line_taps == column_taps == 1:
        stop = min(out_height, first + together)
        source, target = x[plane * height * width :], y[plane * out_height * out_width :]
        pick_lines(source, width, target, lines, columns, first, stop)
        return
    kept = memory[2 * out_width * worker :][: 2 * out_width]
    upper, lower = -1, -1
    for line in range(first, min(out_height, first + together)):
        one = i64(lines[line])
        other = i64(lines[out_height + line]) if line_taps > 1 else one
        # The places of the two, so that what the next line reads again stays where it is.
        place = 0 if upper == one or (lower != one and upper != other) else 1
        if (upper if place == 0 else lower) != one:
            source = x[(plane * height + one) * width :][:width]
            widen(source, columns, column_weights, column_taps, kept[place * out_width :])
            upper, lower = (one, lower) if place == 0 else (upper, one)
        target = y[(plane * out_height + line) * out_width :][:out_width]
        a = kept[place * out_width :][:out_width]
        if line_taps == 1:
            for i in range(target.size):
                target[i] = a[i]
            continue
        behind = place if other == one else 1 - place
        if (upper if behind == 0 else lower) != other:
            source = x[(plane * height + other) * width :][:width]
            widen(source, columns, column_weights, column_taps, kept[behind * out_width :])
            upper, lower = (other, lower) if behind == 0 else (upper, other)
        b = kept[behind * out_width :][:out_width]
        v, w = line_weights[line], line_weights[out_height + line]
        for i in range(target.size):
            target[i] = a[i] * v + b[i] * w


@helper
def pick_lines(x: Any, width: Any, y: Any, lines: Any, columns: Any, first: Any, stop: Any) -> None:
    """Make some lines of a plane of which each element is one of the image's."""
    count = columns.size
    doubled = count == 2 * width
    for i in range(count):
        doubled = doubled and columns[i] == i // 2
    before = i64(-1)
    for line in range(first, stop):
        one, target = i64(lines[line]), y[line * count :][:count]
        source = x[one * width :][:width]
        if one == before:
            above = y[(line - 1) * count :][:count]
            for i in range(count):
                target[i] = above[i]
        elif doubled:
            for i in range(width):
                target[2 * i] = source[i]
                target[2 * i + 1] = source[i]
        else:
            for i in range(count):
                target[i] = source[columns[i]]
        before = one


@helper
def widen(source: Any, columns: Any, weights: Any, taps: Any, line: Any) -> None:
    """Read one or two elements of a line for each element of a wider or narrower one."""
    count = columns.size // taps
    first, target = columns[:count], line[:count]
    if taps == 1:
        for i in range(target.size):
            target[i] = source[first[i]]
        return
    second, v, w = columns[count:], weights[:count], weights[count:]
    for i in range(target.size):
        target[i] = source[first[i]] * v[i] + source[second[i]] * w[i]


@kernel(
    (
        In(f32, 1), Out(f32, 1), In(u32, 1), In(f32, 1), In(u32, 1), In(f32, 1), In(i64, 1),
        Out(f32, 1), size,
    ),
    Contract(plan="scales or sizes have the rank", launch="the result has elements"),
)  # fmt: skip
def resize_f32(x, y, lines, line_weights, columns, column_weights, sizes, memory, threads):  # type: ignore[no-untyped-def] # the signature has them
    """Resize planes.

    Args:
        x: The planes, (planes, height, width), flat.
        y: The result.
        lines: Which lines each line of the result reads: all first ones, then all second ones.
        line_weights: By how much each counts; a single one counts as it is.
        columns: The same for elements of a line.
        column_weights: By how much each of them counts, as of lines.
        sizes: Height and width of a plane and of its result, lines per task, how many lines and
            how many elements one reads, and tasks.
        memory: Two lines of the result for each thread.
        threads: How many threads to use.
    """
    arguments = (x, y, lines, line_weights, columns, column_weights, sizes, memory)
    resize_lines(arguments, sizes[7], threads)
