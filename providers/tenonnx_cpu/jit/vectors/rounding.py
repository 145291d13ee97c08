"""Steps that are rounded one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tenonnx_cpu.jit.code import numba_target


def rounded(function: Callable[..., Any]) -> Any:
    """Decorate a function each of whose steps is rounded, as numpy's are."""
    return numba_target.njit(error_model="numpy", forceinline=True)(function)
