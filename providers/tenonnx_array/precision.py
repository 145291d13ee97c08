"""In which dtype a kernel computes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np

from tenonnx_array.dtypes import SMALL_FLOATS

if TYPE_CHECKING:
    from tenonnx.operators import Array, Namespace

F = TypeVar("F", bound=Callable[..., Any])


def widened(kernel: F) -> F:
    """Decorate a kernel to compute in float32 when its first input is a smaller float.

    Every input of that dtype is widened, and the one result is rounded back once. This is also
    what keeps bfloat16 closed: a bfloat16 array times a Python float is float32.
    """

    @functools.wraps(kernel)
    def call(xp: Namespace, x: Array, *inputs: Array, **attributes: Any) -> Array:
        dtype = x.dtype
        if dtype not in SMALL_FLOATS:
            return kernel(xp, x, *inputs, **attributes)
        wide = (i.astype(np.float32) if i is not None and i.dtype == dtype else i for i in inputs)
        return kernel(xp, x.astype(np.float32), *wide, **attributes).astype(dtype)

    return cast("F", call)
