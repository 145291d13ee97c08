"""Reductions of float32 over axes that lie side by side, in one captured call."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tenonnx.by_name import cacheable
from tenonnx_cpu.buffers import F32, empty
from tenonnx_cpu.capture.capturable import Capturable
from tenonnx_cpu.capture.launch import Launch
from tenonnx_cpu.jit.runtime import JitKernel
from tenonnx_cpu.kernel_selection import Call, NDArray, Site, specialize
from tenonnx_cpu.reduce.fold import FOLD, folded
from tenonnx_cpu.reduce.kernels import GREATEST, LEAST, PRODUCT, SQUARES, SUM
from tenonnx_cpu.threading_config import shared_out

REDUCE = JitKernel("reduce.reduction", "reduce")

REDUCTION_CODES = {
    "ReduceL2": SQUARES,
    "ReduceMax": GREATEST,
    "ReduceMean": SUM,
    "ReduceMin": LEAST,
    "ReduceProd": PRODUCT,
    "ReduceSum": SUM,
    "ReduceSumSquare": SQUARES,
}
OF_INTEGERS: dict[str, Any] = {
    "ReduceMax": np.maximum,
    "ReduceMin": np.minimum,
    "ReduceProd": np.multiply,
    "ReduceSum": np.add,
}
SIZE_DTYPES = (np.dtype(np.int32), np.dtype(np.int64))

# Elements of sizes, such as products of shapes, which numpy reduces at once.
MAX_SIZES = 64

# Elements that are worth a second thread.
MIN_REDUCED_ELEMENTS_PER_THREAD = 1 << 15


@specialize(
    *("ReduceL1", "ReduceL2", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceSum"),
    "ReduceSumSquare",
)
def specialize_reduction(site: Site, plain: Call) -> Call | None:
    """Take axes that are constants."""
    call = reduction(site, plain)
    return None if call is None else Capturable(call)


def reduction(site: Site, plain: Call) -> Callable[..., Any] | None:
    """Return what a node computes, or a launch of that; ``None`` if its axes are not constants."""
    inputs, operator = site.node.inputs, site.node.op_type
    axes = site.attribute("axes", None)
    if len(inputs) > 1 and inputs[1] is not None:
        given = site.constant(1)
        if given is None:
            return None
        axes = given.reshape(-1).tolist()
    if not axes and site.attribute("noop_with_empty_axes", 0):
        return None
    axes = tuple(axes) if axes else None
    places = axes or ()
    signs = {axis < 0 for axis in places}
    apart = len(set(places)) == len(places) and len(signs) < 2  # 0 and -2 may be one axis
    REDUCE.request()
    FOLD.request()
    keeps = bool(site.attribute("keepdims", 1))
    return ReductionCall(operator, axes, keeps, apart, site.threads, plain)


@cacheable
@dataclass(frozen=True, eq=False)
class ReductionCall:
    """Reduces axes.

    Attributes:
        operator: Its name.
        axes: The axes; ``None`` for all.
        keeps: Whether they stay, of length 1.
        apart: Whether all of them are known to be different ones.
        threads: How many to use at most.
        plain: Computes the same from the same inputs.
    """

    operator: str
    axes: tuple[int, ...] | None
    keeps: bool
    apart: bool
    threads: int
    plain: Call

    def __call__(self, x: NDArray, *rest: Any) -> Any:
        """Return a launch, or the result."""
        run, axes, keeps = REDUCE.run, self.axes, self.keeps
        kind = REDUCTION_CODES.get(self.operator)
        if x.dtype != F32 or run is None or kind is None:
            integers = OF_INTEGERS.get(self.operator) if self.apart else None
            if (
                integers is not None
                and x.dtype in SIZE_DTYPES
                and 0 < x.size <= MAX_SIZES
                and x.ndim
            ):
                return integers.reduce(x, axis=axes, dtype=x.dtype, keepdims=keeps)
            return self._other(x, rest)
        cut = cut_of(x.shape, axes, keeps, kind, self.threads)
        if cut is None or not (x.flags.c_contiguous and x.flags.aligned):
            return self._other(x, rest)
        y = empty(cut.result)
        scale = 1 / cut.count if self.operator == "ReduceMean" else 1.0
        root = int(self.operator == "ReduceL2")
        arguments = (x.reshape(-1), y.reshape(-1), cut.shape, scale, root, cut.threads)
        return Launch(run, arguments, y)

    def _other(self, x: NDArray, rest: tuple[Any, ...]) -> Any:
        made = folded(self.operator, x, self.axes, self.keeps, self.threads)
        return self.plain(x, *rest) if made is None else made


@dataclass(frozen=True)
class _ReductionLayout:
    result: tuple[int, ...]
    count: int
    shape: NDArray
    threads: int


@functools.lru_cache(maxsize=1024)
def cut_of(
    shape: tuple[int, ...], axes: tuple[int, ...] | None, keeps: bool, kind: int, threads: int
) -> _ReductionLayout | None:
    """Return how to reduce an array; ``None`` if its axes do not lie side by side."""
    rank = len(shape)
    reduced = set(range(rank)) if axes is None else {a + rank if a < 0 else a for a in axes}
    if axes is not None and (len(reduced) < len(axes) or not reduced <= set(range(rank))):
        return None
    long = [axis for axis in reduced if shape[axis] > 1]
    first, last = (min(long), max(long)) if long else (0, -1)
    if not rank or not math.prod(shape):
        return None
    if any(shape[axis] > 1 and axis not in reduced for axis in range(first, last + 1)):
        return None
    outer, count = math.prod(shape[:first]), math.prod(shape[first : last + 1])
    inner = math.prod(shape[last + 1 :])
    work = outer * count * inner
    team = threads if work >= MIN_REDUCED_ELEMENTS_PER_THREAD else 1
    grain, _ = shared_out(outer, work, MIN_REDUCED_ELEMENTS_PER_THREAD, threads)
    numbers = np.array([kind, outer, count, inner, grain], np.int64)
    numbers.flags.writeable = False
    kept = [
        1 if axis in reduced else n for axis, n in enumerate(shape) if keeps or axis not in reduced
    ]
    return _ReductionLayout(tuple(kept), count, numbers, team)
