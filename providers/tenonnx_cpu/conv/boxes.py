"""NonMaxSuppression on a kernel, which compares boxes with the selected ones only."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from tenonnx.by_name import cacheable
from tenonnx_array.boxes import select
from tenonnx_cpu.buffers import F32
from tenonnx_cpu.jit.runtime import JitKernel
from tenonnx_cpu.kernel_selection import Call, NDArray, Site, specialize

SUPPRESS = JitKernel("conv.boxes", "suppress")


@specialize("NonMaxSuppression")
def specialize_boxes(site: Site, plain: Call) -> Call | None:
    """Select boxes per class."""
    SUPPRESS.request()
    return functools.partial(_selected, site.attribute("center_point_box", 0), plain)


@cacheable
def _selected(
    center: int, plain: Call, boxes: NDArray, scores: NDArray, limit: Any = None,
    overlap: Any = None, floor: Any = None,
) -> Any:  # fmt: skip
    fitting = boxes.dtype == F32 and boxes.ndim == scores.ndim == 3
    run = SUPPRESS.run
    if run is None or not fitting or boxes.shape[::2] != (scores.shape[0], 4):
        return plain(boxes, scores, limit, overlap, floor)
    suppress = functools.partial(apart, run)
    return np.concatenate(select(boxes, scores, limit, overlap, floor, center, suppress))


def apart(run: Call, sides: NDArray, limit: int, overlap: NDArray) -> NDArray:
    """Return which boxes are selected; see ``tenonnx_array.boxes.apart``."""
    kept = np.empty(min(limit, sides.shape[1]), np.int64)
    count = np.empty(1, np.int64)
    run(np.ascontiguousarray(sides), np.full(1, overlap, F32), kept, count, 1)
    return kept[: int(count[0])]
