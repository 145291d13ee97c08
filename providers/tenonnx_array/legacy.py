"""Arguments of operators of opset 1 to 6 that later versions lack."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from tenonnx.by_name import cacheable
from tenonnx.operators import PASSES_ON, Array, Namespace

Function = Callable[..., Array]


def elementwise(xp: Namespace, name: str) -> Callable[..., Array]:
    """Return a namespace's function of a name that is a ufunc of numpy's.

    Raises:
        ValueError: It is none. Others read files; the author of a cached plan decides the name.
    """
    if not isinstance(getattr(np, name, None), np.ufunc):
        raise ValueError(f"{name} is no elementwise function")
    found: Callable[..., Array] = getattr(xp, name)
    return found


def resolve(xp: Namespace, function: Function | str, *inputs: Array, **attributes: Any) -> Array:
    """Call what a table row names: a namespace function's name, or a kernel."""
    if isinstance(function, str):
        return elementwise(xp, function)(*inputs, **attributes)
    return function(xp, *inputs, **attributes)


def consuming(function: Function | str) -> Function:
    """Return the opset-1 form of a kernel.

    It also takes ``consumed_inputs``, by which a model named the inputs whose memory may be
    reused; that is the runtime's decision now.
    """
    kernel = functools.partial(_consuming, function)
    vars(kernel)[PASSES_ON] = (function,)
    return kernel


@cacheable
def _consuming(
    function: Function | str,
    xp: Namespace,
    *inputs: Array,
    consumed_inputs: tuple[int, ...] = (),  # noqa: ARG001 - see above
    **attributes: Any,
) -> Array:
    return resolve(xp, function, *inputs, **attributes)


def limited_broadcast(function: Function | str) -> Function:
    """Return the form that binary operators had before opset 7.

    Shapes must be equal, or with ``broadcast=1`` the second a contiguous part of the first that
    begins at ``axis`` (the last axes when it is absent), where a dimension of 1 fits any other;
    or a single element.
    """
    return functools.partial(_limited_broadcast, function)


@cacheable
def _limited_broadcast(
    function: Function | str,
    xp: Namespace,
    a: Array,
    b: Array,
    *,
    axis: int | None = None,
    broadcast: int = 0,
) -> Array:
    if broadcast:
        b = _placed(b, a.shape, axis)
    elif a.shape != b.shape:
        raise ValueError(f"expected two equal shapes, found {a.shape} and {b.shape}")
    return resolve(xp, function, a, b)


def _placed(b: Array, shape: tuple[int, ...], axis: int | None) -> Array:
    """Reshape the second operand so that numpy's broadcasting aligns it with the first."""
    if b.size == 1:
        return b.reshape(())
    start = len(shape) - b.ndim if axis is None else axis + len(shape) * (axis < 0)
    end = start + b.ndim
    places = zip(b.shape, shape[start:end], strict=False)
    if start < 0 or end > len(shape) or any(own not in (1, place) for own, place in places):
        raise ValueError(
            f"expected a second operand whose shape is a contiguous part of {shape}"
            f" from axis {start}, found {b.shape}"
        )
    return b.reshape(b.shape + (1,) * (len(shape) - end))
