"""Copies that a step makes of inputs whose elements lie apart: launches before its own.

Many kernels take adjacent elements alone, and a transposed array is a view. While a step is
captured, ``buffers.contiguous`` has a kernel make the copy, so that every run makes it again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tenonnx_cpu.buffers import COPYING, NDArray
from tenonnx_cpu.capture.launch import AHEAD, Launch, done
from tenonnx_cpu.data_movement.ordered_copies import ordered


def with_copies(function: Callable[..., Any], inputs: tuple[Any, ...], *, make: bool) -> Any:
    """Return what a step's function returns; a ``Launch`` has the copies that it reads.

    Args:
        function: The function.
        inputs: The step's inputs.
        make: Whether the copies are made at once; otherwise their elements may be anything.
    """
    copies: list[Launch] = []

    def before(launch: Launch) -> Any:
        copies.append(launch)
        return done(launch) if make else launch.result

    def copy(x: NDArray) -> NDArray:
        launch = ordered(x, threads=1)
        return np.array(x, order="C") if launch is None else before(launch)

    tokens = COPYING.set(copy), AHEAD.set(before)
    try:
        made = function(*inputs)
    finally:
        COPYING.reset(tokens[0])
        AHEAD.reset(tokens[1])
    return made._replace(copies=tuple(copies)) if copies and type(made) is Launch else made
