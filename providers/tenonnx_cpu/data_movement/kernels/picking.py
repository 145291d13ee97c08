"""Elements of rows picked by their places: every thread takes some of the rows."""

from __future__ import annotations

from typing import Any

from tenonnx_cpu.jit.compiling import Contract, In, Out, f32, i64, kernel, size
from tenonnx_cpu.jit.threads.parallel_for import parallel


@parallel
def pick_row(arguments: Any, task: Any, worker: Any) -> None:
    """Picks for one row."""
    data, places, out, wrong = arguments
    depth, rows = data.shape[2], data.shape[1]
    stack, row = task // rows, task % rows
    for i in range(places.shape[2]):
        place = places[stack, row, i]
        if place < 0:
            place += depth
        if 0 <= place < depth:
            out[stack, row, i] = data[stack, row, place]
        else:
            wrong[0] = 1


@kernel(
    (In(f32, 3, "A"), In(i64, 3, "A"), Out(f32, 3), Out(i64, 1), size),
    Contract(launch="as many rows of places as of data", values="places are in a row"),
)
def pick(data, places, out, wrong, threads):  # type: ignore[no-untyped-def] # the signature has them
    """Writes ``data[stack, row, places[stack, row, i]]``.

    Args:
        data: Stacks of rows, of any strides.
        places: As many, likewise; negative ones count from the end.
        out: Of the places' shape.
        wrong: One number, which becomes 1 if there is no such place, and 0 else.
        threads: How many threads to use.
    """
    wrong[0] = 0
    pick_row((data, places, out, wrong), places.shape[0] * places.shape[1], threads)
