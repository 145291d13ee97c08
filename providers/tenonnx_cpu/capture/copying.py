"""Copies that a step makes of inputs whose elements lie apart: launches before its own.

Many kernels take adjacent elements alone, and a transposed array is a view. While a step is
captured, ``buffers.contiguous`` has a kernel make the copy, so that every run makes it again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tenonnx_cpu.buffers import TRACED, NDArray
from tenonnx_cpu.capture.launch import Launch, done
from tenonnx_cpu.data_movement.ordered_copies import ordered


class Preparation:
    """The launches that steps make before their own, while they are captured.

    Args:
        make: Whether they are made at once; otherwise results' elements may be anything.
    """

    def __init__(self, *, make: bool) -> None:
        self._launches: list[Launch] = []
        self._make = make

    def call(self, function: Callable[..., Any], inputs: tuple[Any, ...]) -> Any:
        """Return what a step's function returns; a ``Launch`` has those before it."""
        token = TRACED.set(self)
        try:
            made = function(*inputs)
        finally:
            TRACED.reset(token)
        if copies := self._launches:
            self._launches = []
            return made._replace(copies=tuple(copies)) if type(made) is Launch else made
        return made

    def launch(self, launch: Launch) -> Any:
        """Return a launch's result."""
        self._launches.append(launch)
        return done(launch) if self._make else launch.result

    def copy(self, x: NDArray) -> NDArray:
        """Return a copy whose elements are adjacent."""
        launch = ordered(x, threads=1)
        return np.array(x, order="C") if launch is None else self.launch(launch)
