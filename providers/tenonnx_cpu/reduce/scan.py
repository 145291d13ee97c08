"""CumSum and CumProd along any axis."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from tenonnx.by_name import cacheable
from tenonnx_cpu.buffers import empty
from tenonnx_cpu.capture.capturable import Capturable
from tenonnx_cpu.capture.launch import Launch
from tenonnx_cpu.jit.runtime import JitKernel
from tenonnx_cpu.jit.threads.sharing import shared_out
from tenonnx_cpu.kernel_selection import Call, NDArray, Site, specialize
from tenonnx_cpu.reduce.kernels import SPAN

SCAN = JitKernel("reduce.scan", "scan")

# Elements that are worth a second thread.
MIN_SCANNED_ELEMENTS_PER_THREAD = 1 << 14


@specialize("CumSum", "CumProd")
def specialize_scan(site: Site, plain: Call) -> Call | None:
    """Take numbers of 4 or 8 bytes along an axis that is a constant."""
    axis = site.scalar(1)
    if axis is None:
        return None
    SCAN.request()
    form = ScanOrder(
        axis=int(axis.item()),
        product=site.node.op_type == "CumProd",
        exclusive=bool(site.attribute("exclusive", 0)),
        reverse=bool(site.attribute("reverse", 0)),
    )
    return Capturable(functools.partial(scanned, form, site.threads, plain))


@cacheable
@dataclass(frozen=True)
class ScanOrder:
    """One way to run along an axis.

    Attributes:
        axis: Which.
        product: Whether elements are multiplied instead of added.
        exclusive: Whether an element is not part of its own sum.
        reverse: Whether it goes from the end on.
    """

    axis: int
    product: bool
    exclusive: bool
    reverse: bool


def scanned(form: ScanOrder, threads: int, plain: Call, x: NDArray, *rest: Any) -> Any:
    """Return a launch, or the result."""
    run = SCAN.run
    fits = x.dtype.kind in "iuf" and x.itemsize in (4, 8) and -x.ndim <= form.axis < x.ndim
    if run is None or not fits or not x.size or not (x.flags.c_contiguous and x.flags.aligned):
        return plain(x, *rest)
    y = empty(x.shape, x.dtype)
    numbers, team = _cut(form, x.shape, x.itemsize, x.dtype.kind == "f", threads)
    both = (each.reshape(-1).view(np.uint8) for each in (x, y))
    return Launch(run, (*both, numbers, team), y)


@functools.lru_cache(maxsize=256)
def _cut(
    form: ScanOrder, shape: tuple[int, ...], size: int, floats: bool, threads: int
) -> tuple[NDArray, int]:
    """Return the kernel's numbers, and how many threads are of use."""
    axis = form.axis % len(shape)
    outer, inner = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
    work = outer * shape[axis] * inner
    if inner == 1:
        grain, team = shared_out(outer, work, MIN_SCANNED_ELEMENTS_PER_THREAD, threads)
        tasks = -(-outer // grain)
    else:
        grain, tasks = 1, outer * -(-inner // SPAN)
        team = threads if work >= MIN_SCANNED_ELEMENTS_PER_THREAD else 1
    ways = floats, form.product, form.exclusive, form.reverse
    numbers = np.array([outer, shape[axis], inner, size, *ways, grain, tasks], np.int64)
    numbers.flags.writeable = False
    return numbers, team
