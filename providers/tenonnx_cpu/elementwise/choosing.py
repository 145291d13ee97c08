"""The operator Where on float32: masks that are applied between products."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tenonnx_cpu.buffers import empty
from tenonnx_cpu.capture.capturable import Capturable
from tenonnx_cpu.capture.launch import Launch
from tenonnx_cpu.jit.runtime import JitKernel
from tenonnx_cpu.kernel_selection import F32, Call, NDArray, Site, specialize
from tenonnx_cpu.threading_config import shared_out

CHOOSE = JitKernel("elementwise.choosing", "choose_f32")

ENOUGH = 1 << 15
"""Elements that are worth a second thread."""

AXES = 4
"""Axes of the kernel's arrays."""


@specialize("Where")
def specialize_where(site: Site, plain: Call) -> Call | None:
    """Takes float32 of four axes at most."""
    if site.dtype(1) not in (F32, None) or site.dtype(2) not in (F32, None):
        return None
    CHOOSE.request()
    threads = site.threads

    def call(kept: NDArray, x: NDArray, y: NDArray) -> Any:
        run = CHOOSE.run
        if run is None or not _fit(kept, x, y):
            return plain(kept, x, y)
        try:
            shape = np.broadcast_shapes(kept.shape, x.shape, y.shape)
        except ValueError:
            return plain(kept, x, y)
        if len(shape) > AXES or 0 in shape:
            return plain(kept, x, y)
        result, whole = empty(shape), (1,) * (AXES - len(shape)) + shape
        lines, elements = math.prod(whole[:-1]), result.size
        grain, team = shared_out(lines, elements, ENOUGH, threads)
        arrays = (np.broadcast_to(each, whole) for each in (kept, x, y))
        return Launch(run, (*arrays, result.reshape(whole), grain, team), result)

    return Capturable(call)


def _fit(kept: NDArray, x: NDArray, y: NDArray) -> bool:
    """Says whether arrays are of the kernel's types, and aligned."""
    if kept.dtype != np.bool_ or x.dtype != F32 or y.dtype != F32:
        return False
    return kept.flags.aligned and x.flags.aligned and y.flags.aligned
