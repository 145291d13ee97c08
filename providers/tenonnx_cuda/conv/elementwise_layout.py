"""Elementwise operators that keep channels last, between convolutions that need them so.

cupy returns arrays in ONNX's order of axes, whatever the strides of its arguments. After an image
whose channels are last, the next convolution would then copy it. Here cupy is called with the axes
in the order of memory, and the result is viewed in ONNX's order again.
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
    """Compute on the axes in the order of memory, for any result but the graph's outputs.

    Before opset 7, ``axis`` and ``broadcast`` count axes in ONNX's order.
    """
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
