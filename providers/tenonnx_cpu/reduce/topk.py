"""TopK along any axis in one captured call."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from tenonnx.by_name import cacheable
from tenonnx_cpu.buffers import UNREAD, empty
from tenonnx_cpu.capture.capturable import Capturable
from tenonnx_cpu.capture.launch import Launch, done, is_fixed
from tenonnx_cpu.jit.runtime import JitKernel
from tenonnx_cpu.jit.scratch import pieces, share_of, worker_shares
from tenonnx_cpu.jit.threads.sharing import shared_out
from tenonnx_cpu.kernel_selection import Call, NDArray, Site, specialize
from tenonnx_cpu.reduce.kernels import COLUMNS, FLOATING, UNSIGNED, WHOLE

TOP_K = JitKernel("reduce.topk", "top_k")

# The orders of elements.
ORDERS = {
    np.dtype(name): order
    for names, order in (("bhil", WHOLE), ("BHIL", UNSIGNED), ("efd", FLOATING))
    for name in names
}

# Elements that are wanted at least, and as a share of a row's, where that is sorted.
MIN_SORTED_COUNT, MIN_SORTED_SHARE = 32, 1 / 64

# Bytes that sorting needs for each element.
SORTED_BYTES = 32

# Elements that are worth a second thread.
MIN_SORTED_ELEMENTS_PER_THREAD = 1 << 15

# The worst cost of an element for each level of the heap, in units of reading an element.
LEVEL = 32


@specialize("TopK")
def specialize_top_k(site: Site, plain: Call) -> Call | None:
    """Take numbers."""
    if len(site.node.inputs) < 2:
        return None
    TOP_K.request()
    axis, largest = site.attribute("axis", -1), site.attribute("largest", 1)
    return Capturable(TopKCall(axis, largest, site.constant(1) is not None, site.threads, plain))


@cacheable
@dataclass(frozen=True, eq=False)
class TopKCall:
    """Selects the greatest elements of rows, or the least.

    Attributes:
        axis: Along which.
        largest: Whether it is the greatest.
        constant: Whether the number of elements is.
        threads: How many to use at most.
        plain: Computes the same from the same inputs.
    """

    axis: int
    largest: int
    constant: bool
    threads: int
    plain: Call

    def __call__(self, x: NDArray, k: NDArray) -> Any:
        """Return a launch, or elements and their places."""
        count = int(k.item())
        run, order = TOP_K.run, ORDERS.get(x.dtype)
        if run is None or order is None or not -x.ndim <= self.axis < x.ndim or not x.size:
            return self.plain(x, k)
        length = x.shape[self.axis]
        if not 0 < count <= length or not (x.flags.c_contiguous and x.flags.aligned):
            return self.plain(x, k)
        numbers, share, team = cut_of(
            x.shape, self.axis, count, order, x.itemsize, bool(self.largest), self.threads
        )
        axis = self.axis % x.ndim
        shape = (*x.shape[:axis], count, *x.shape[axis + 1 :])
        values, places = empty(shape, x.dtype), empty(shape, np.dtype(np.int64))
        memory = pieces(worker_shares(share, team, np.uint8))[0] if share else UNREAD
        flat = (array.reshape(-1).view(np.uint8) for array in (x, values))
        arguments = (*flat, places.reshape(-1), memory, numbers, team)
        launch = Launch(run, arguments, (values, places))
        return launch if self.constant or is_fixed(k) else done(launch)


@functools.lru_cache(maxsize=256)
def cut_of(
    shape: tuple[int, ...],
    axis: int,
    count: int,
    order: int,
    size: int,
    largest: bool,
    threads: int,
) -> tuple[NDArray, int, int]:
    """Return the kernel's numbers, bytes of each worker's memory, and how many threads to use."""
    axis %= len(shape)
    outer, length, inner = math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])
    rows = outer if inner == 1 else outer * -(-inner // COLUMNS)
    cost = LEVEL * count.bit_length()
    work = outer * length * inner * cost
    grain, team = shared_out(rows, work, MIN_SORTED_ELEMENTS_PER_THREAD * cost, threads)
    sorts = count >= max(MIN_SORTED_COUNT, MIN_SORTED_SHARE * length)
    own = (-(-COLUMNS * length * size // 8) * 8 + 2 * 8 * count) if inner > 1 else 0
    share = share_of(own + SORTED_BYTES * length * sorts, np.uint8)
    numbers = [size, order, largest, count, outer, length, inner, sorts, share, grain]
    made = np.array([*numbers, -(-rows // grain)], np.int64)
    made.flags.writeable = False
    return made, share, team
