"""TopK along the last axis in one captured call."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tenonnx_cpu.buffers import empty
from tenonnx_cpu.capture.capturable import Capturable
from tenonnx_cpu.capture.launch import Launch, done, is_fixed
from tenonnx_cpu.jit.runtime import JitKernel
from tenonnx_cpu.kernel_selection import F32, Call, NDArray, Site, specialize
from tenonnx_cpu.threading_config import shared_out

TOP_K = JitKernel("reduce.topk", "top_k")

SHARE, FEW = 4, 512
"""The least ratio of a row's elements to those that are wanted, unless there are so few: numpy
sorts others as fast."""

ENOUGH = 1 << 15
"""Elements that are worth a second thread."""

LEVEL = 32
"""The worst cost of an element for each level of the heap, in units of reading an element."""


@specialize("TopK")
def specialize_top_k(site: Site, plain: Call) -> Call | None:
    """Takes float32."""
    axis, largest = site.attribute("axis", -1), site.attribute("largest", 1)
    if len(site.node.inputs) < 2:
        return None
    constant = site.constant(1) is not None
    TOP_K.request()

    def call(x: NDArray, k: NDArray) -> Any:
        count = int(k.item())
        last = axis in (-1, x.ndim - 1) and x.ndim > 0
        if TOP_K.run is None or x.dtype != F32 or not last or not x.size:
            return plain(x, k)
        most = x.shape[-1] if x.size <= FEW else x.shape[-1] // SHARE
        if not 0 < count <= most or not (x.flags.c_contiguous and x.flags.aligned):
            return plain(x, k)
        outer = x.shape[:-1]
        rows = math.prod(outer)
        values = empty((*outer, count))
        places = empty((*outer, count), np.dtype(np.int64))
        cost = LEVEL * count.bit_length()
        grain, team = shared_out(rows, x.size * cost, ENOUGH * cost, site.threads)
        flat = (array.reshape(rows, -1) for array in (x, values, places))
        launch = Launch(TOP_K.run, (*flat, largest, grain, team), (values, places))
        return launch if constant or is_fixed(k) else done(launch)

    return Capturable(call)
