"""Operators of the array library that leave images as they lie.

cupy's results have their axes in order, whichever way its arguments lie.
"""

from __future__ import annotations

import functools
from typing import Any

from tenonnx.operators import Array
from tenonnx_cuda.conv import layouts
from tenonnx_cuda.kernel_selection import Call, Site, choose


@choose("Abs", "Add", "Clip", "Div", "Elu", "Erf", "Exp", "HardSigmoid", "HardSwish", "LeakyRelu",
        "Max", "Min", "Mul", "Relu", "Sigmoid", "Softplus", "Sub", "Tanh")  # fmt: skip
def elementwise(site: Site, plain: Call) -> Call | None:
    """Constants that are the same for every element."""
    if not layouts.may_choose(site.node) or site.version < 7:
        return None
    return functools.partial(_as_it_lies, plain)


def _as_it_lies(plain: Call, *given: Array | None) -> Any:
    arrays = [x for x in given if x is not None]
    turned = layouts.turned(arrays)
    if turned is None:
        return plain(*given)
    rest = iter(turned)
    return layouts.first(plain(*(x if x is None else next(rest) for x in given)))
