"""Steps that can write their output into a caller's buffer."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from tenonnx.graph.shape_checks import broadcast_shapes

# Takes buffers and the step's inputs; returns the outputs, in buffers if it wrote there.
Writer: TypeAlias = Callable[..., Any]


def writer(call: Callable[..., Any], *, multiple: bool = False) -> Writer | None:
    """Return a step's call as one that takes buffers first; ``None`` if it cannot write there.

    A kernel can if it has a keyword-only parameter ``_out``: a buffer of the output's dtype, or
    ``None``. It may be the very memory of an input that nothing else reads. A kernel that cannot
    use it, because the shapes differ for example, returns an array of its own. One of several
    outputs has a parameter ``_outs`` instead: a tuple of as many.

    Args:
        call: The step's.
        multiple: Whether it returns a tuple.
    """
    function = call.func if isinstance(call, functools.partial) else call
    if isinstance(function, np.ufunc):
        return None if multiple or function.nout != 1 else _ufunc_writer(call, function)
    keyword = "_outs" if multiple else "_out"
    if not _has_parameter(call, keyword):
        return None
    return functools.partial(_write, call, keyword)


def _write(call: Callable[..., Any], keyword: str, out: Any, *inputs: Any) -> Any:
    return call(*inputs, **{keyword: out})


def _ufunc_writer(call: Callable[..., Any], ufunc: np.ufunc) -> Writer | None:
    shape_of: Callable[..., tuple[int, ...]]
    if ufunc is np.matmul:
        shape_of = _matmul_shape
    elif ufunc.signature is None:
        shape_of = _broadcast_shape
    else:
        return None
    return functools.partial(_write_ufunc, call, shape_of)


def _write_ufunc(
    call: Callable[..., Any],
    shape_of: Callable[..., tuple[int, ...]],
    out: Any,
    *inputs: Any,
) -> Any:
    # A ufunc would fill a larger buffer with repetitions.
    if out is not None and shape_of(*inputs) == out.shape:
        return call(*inputs, out=out)
    return call(*inputs)


def _broadcast_shape(*inputs: Any) -> tuple[int, ...]:
    return broadcast_shapes(*(np.shape(given) for given in inputs))


def _matmul_shape(a: Any, b: Any) -> tuple[int, ...]:
    if a.ndim < 2 or b.ndim < 2:
        return (-1,)
    return (*broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1])


def _has_parameter(function: Callable[..., Any], name: str) -> bool:
    try:
        return name in inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False
