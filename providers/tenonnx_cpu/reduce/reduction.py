"""Reductions over axes that are constants, and the places of extremes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tenonnx.by_name import cacheable
from tenonnx_cpu.capture.capturable import Capturable
from tenonnx_cpu.kernel_selection import Call, NDArray, Site, specialize
from tenonnx_cpu.reduce.fold import FOLD, folded

OF_INTEGERS: dict[str, Any] = {
    "ReduceMax": np.maximum,
    "ReduceMin": np.minimum,
    "ReduceProd": np.multiply,
    "ReduceSum": np.add,
}
SIZE_DTYPES = (np.dtype(np.int32), np.dtype(np.int64))

# Elements of sizes, such as products of shapes, which numpy reduces at once.
MAX_SIZES = 64


@specialize(
    *(
        "ReduceL1",
        "ReduceL2",
        "ReduceLogSum",
        "ReduceMax",
        "ReduceMean",
        "ReduceMin",
        "ReduceProd",
        "ReduceSum",
    ),
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
        axes, keeps = self.axes, self.keeps
        integers = OF_INTEGERS.get(self.operator) if self.apart else None
        if integers is not None and x.dtype in SIZE_DTYPES and 0 < x.size <= MAX_SIZES and x.ndim:
            return integers.reduce(x, axis=axes, dtype=x.dtype, keepdims=keeps)
        made = folded(self.operator, x, axes, keeps, self.threads)
        return self.plain(x, *rest) if made is None else made


@specialize("ArgMax", "ArgMin")
def specialize_places(site: Site, plain: Call) -> Call:
    """Take numbers of any type; scalars have no axes."""
    FOLD.request()
    axis, keeps = int(site.attribute("axis", 0)), int(site.attribute("keepdims", 1))
    last = bool(site.attribute("select_last_index", 0))
    operator = site.node.op_type
    return Capturable(functools.partial(_places, operator, axis, keeps, last, site.threads, plain))


@cacheable
def _places(
    operator: str, axis: int, keeps: int, last: bool, threads: int, plain: Call, x: NDArray
) -> Any:
    return folded(operator, x, (axis,), bool(keeps), threads, last) or plain(x)
