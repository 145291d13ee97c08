"""Products of a few rows with 16-bit matrices: bound by reading those, which cuBLAS is slow at."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from tenonnx.operators import Array
from tenonnx_cuda.elementwise.formulas import function_of
from tenonnx_cuda.kernel_selection import same_element
from tenonnx_cuda.matmul.cublas import placed
from tenonnx_cuda.matmul.epilogue import Epilogue
from tenonnx_cuda.platform import Platform
from tenonnx_cuda.sources import is_aligned, kernel, pointer

ROWS: Final = (1, 2, 4)
"""Of x, that a kernel is compiled for."""

WARPS, WIDTH = 8, 32
"""Of a block, by rows of the matrix and by its columns: as ``gemv.cu`` says."""

LEAST: Final = 64
"""Blocks from which on they read as fast as a device can."""

PLAIN: Final = Epilogue()


def product_of_few(
    platform: Platform, a: Array, b: Array, epilogue: Epilogue = PLAIN
) -> Array | None:
    """Returns a product and what becomes of it, or ``None`` if the kernel is not for it.

    Args:
        platform: The device.
        a: Rows [..., K].
        b: A matrix [K, N], also transposed.
        epilogue: What becomes of it.
    """
    bias, added, activation = epilogue.bias, epilogue.added, epilogue.activation
    xp, count = platform.xp, a.size // a.shape[-1] if a.size else 0
    element = same_element(a, b, bias, added)
    if element not in ("f16", "bf16") or not 0 < count <= ROWS[-1] or b.ndim != 2:
        return None
    places = placed(b.shape, b.strides, b.itemsize, 1)
    inner, outer = b.shape
    if places is None or a.shape[-1] != inner:
        return None
    turned, apart, _ = places
    across = -(-outer // (WARPS if turned else WIDTH))
    even = apart % 8 == 0 and (inner if turned else outer) % 8 == 0
    if across < LEAST or not even or not is_aligned(a, b):
        return None
    x, *more = (None if v is None else xp.ascontiguousarray(v) for v in (a, added, bias))
    y = xp.empty((*a.shape[:-1], outer), a.dtype)
    rows = next(n for n in ROWS if n >= count)
    name = "gemv_by_rows" if turned else "gemv_by_columns"
    macros: dict[str, Any] = {"T": element, "ROWS": rows, "ACTIVATED": function_of(activation)}
    launch = kernel(platform, "matmul/gemv", name, **macros)
    numbers = (
        np.float32(epilogue.alpha),
        np.float32(epilogue.beta),
        *map(np.int32, (count, outer, inner, apart)),
    )
    launch((across,), (WARPS * 32,), (x, b, *map(pointer, more), y, *numbers))
    return y
