"""GatherElements along the last axis, by which relative positions find their scores."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx_cpu.buffers import empty
from tenonnx_cpu.capture.capturable import Capturable
from tenonnx_cpu.capture.launch import Launch
from tenonnx_cpu.jit.runtime import JitKernel
from tenonnx_cpu.jit.scratch import pieces
from tenonnx_cpu.kernel_selection import Call, NDArray, Site, specialize

PICK = JitKernel("data_movement.picking", "pick")

SHARED = 1 << 16
"""Elements that are worth a second thread."""


@specialize("GatherElements")
def gather_elements(site: Site, plain: Call) -> Call:
    """Takes float32 and as many places in each of its rows, which numpy takes one by one."""
    axis, threads = site.attribute("axis", 0), site.threads
    PICK.request()

    def call(data: NDArray, places: NDArray) -> Any:
        run = PICK.run
        last = axis in (-1, data.ndim - 1) and data.shape[:-1] == places.shape[:-1]
        if run is None or not last or not places.size or not _fit(data, places):
            return plain(data, places)
        if (rows := _stacked(data)) is None or (wanted := _stacked(places)) is None:
            return plain(data, places)
        out = empty(places.shape)
        (wrong,) = pieces(((1,), np.int64))
        used = threads if places.size >= SHARED else 1
        arguments = rows, wanted, out.reshape(wanted.shape), wrong, used
        return Launch(run, arguments, out, refusal=wrong, otherwise=plain)

    return Capturable(call)


def _stacked(array: NDArray) -> NDArray | None:
    """Returns an array as stacks of rows, where no copy has to be made for it."""
    if array.ndim == 3:
        return array
    shape = (-1, array.shape[-2] if array.ndim > 1 else 1, array.shape[-1])
    made = array.reshape(shape)
    return made if np.may_share_memory(made, array) else None


def _fit(data: NDArray, places: NDArray) -> bool:
    """Says whether arrays are of the kernel's types, and aligned."""
    aligned = data.flags.aligned and places.flags.aligned
    return aligned and data.dtype == np.float32 and places.dtype == np.int64 and data.size > 0
