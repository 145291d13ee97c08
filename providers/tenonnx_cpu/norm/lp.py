"""LpNormalization: a reduction, and quotients."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from tenonnx.by_name import cacheable
from tenonnx_cpu.capture.capturable import Capturable
from tenonnx_cpu.capture.launch import ahead, fix
from tenonnx_cpu.elementwise.kernels import operations as o
from tenonnx_cpu.elementwise.typed import APPLY, DTYPES, OF_SIZE, code_of, launch
from tenonnx_cpu.kernel_selection import Call, NDArray, Site, specialize
from tenonnx_cpu.reduce.fold import FOLD, folded

# What norms are compared with, and the divisor of rows that stay zeros, by the elements' type.
NUMBERS = {np.dtype(kind): (fix(np.zeros((), kind)), fix(np.ones((), kind))) for kind in ("f", "d")}


@specialize("LpNormalization")
def specialize_lp(site: Site, plain: Call) -> Call | None:
    """Take float32 and float64 along any axis."""
    axis, p = site.attribute("axis", -1), site.attribute("p", 2)
    if p not in (1, 2):
        return None
    FOLD.request()
    APPLY.request()
    return Capturable(functools.partial(_normalized, f"ReduceL{p}", axis, site.threads, plain))


@cacheable
def _normalized(operator: str, axis: int, threads: int, plain: Call, x: NDArray) -> Any:
    """Return a launch, or the result."""
    numbers, element = NUMBERS.get(x.dtype), code_of(x.dtype)
    if numbers is None or element is None or not -x.ndim <= axis < x.ndim:
        return plain(x)
    summed = folded(operator, x, (axis,), True, threads)
    if summed is None:
        return plain(x)
    (zero, one), norm, made = numbers, ahead(summed), None
    is_zero = launch(o.EQUAL, element, (norm, zero), DTYPES[o.BOOL], threads)
    if is_zero is not None:
        given = ahead(is_zero), one, norm
        made = launch(o.WHERE, OF_SIZE[x.itemsize], given, x.dtype, threads)
    if made is not None:
        made = launch(o.DIV, element, (x, ahead(made)), x.dtype, threads)
    return plain(x) if made is None else made
