"""Concat: every thread copies some of the rows."""

from __future__ import annotations

from typing import Any

from tenonnx_cpu.jit.compiling import Contract, In, i64, kernel, size
from tenonnx_cpu.jit.threads.parallel_for import parallel
from tenonnx_cpu.jit.vectors.views import floats


@parallel
def concat_row(arguments: Any, task: Any, worker: Any) -> None:
    """Copy one row of every part."""
    starts, lengths, out, width = arguments
    place = out + 4 * width * task
    for part in range(starts.size):
        count = lengths[part]
        source, target = floats(starts[part] + 4 * count * task, count), floats(place, count)
        for i in range(count):
            target[i] = source[i]
        place += 4 * count


@kernel(
    (In(i64, 1), In(i64, 1), size, size, size, size),
    Contract(launch="shapes agree but along the axis", captured=False, addressed=True),
)
def concat(starts, lengths, out, rows, width, threads):  # type: ignore[no-untyped-def] # the signature has them
    """Write rows that are the parts' rows one after the other.

    Args:
        starts: Addresses of the parts, each of adjacent elements of 4 bytes.
        lengths: How many of them a row has, per part.
        out: Address of the result.
        rows: How many rows.
        width: Elements of a row of the result.
        threads: How many threads to use.
    """
    concat_row((starts, lengths, out, width), rows, threads)
