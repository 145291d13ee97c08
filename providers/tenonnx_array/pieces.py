"""Long calls of numpy's in pieces, between which a run can be stopped."""

from __future__ import annotations

from collections.abc import Iterator

from tenonnx import interruption


def pieces(length: int, work: int, longest: int) -> Iterator[slice]:
    """Yield slices that an axis of some length is done in, having looked whether to stop.

    Args:
        length: Of the axis.
        work: What there is to do along all of it.
        longest: What a piece may have to do, if it is more than one of the axis.
    """
    step = max(1, length * longest // max(work, longest))
    for start in range(0, length, step):
        interruption.check()
        yield slice(start, start + step)
