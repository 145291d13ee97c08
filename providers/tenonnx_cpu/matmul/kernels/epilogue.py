"""The operations on a product that is still in the cache: scale, bias, residual, activation."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx_cpu.elementwise.kernels import opcodes
from tenonnx_cpu.elementwise.kernels.activate import activate
from tenonnx_cpu.jit.compiling import In, f32, helper, size

EXTRAS = (In(f32, 1), In(f32, 2), f32, size, f32, f32)
"""``bias, residual, alpha, activation, first, second``: what ``finish_rows`` does to a product.

* ``bias``: one for every column, or of no size.
* ``residual``: of the product's shape, or of no rows.
* The others are ``products.product.Epilogue``'s.
"""


@helper
def finish(
    row: Any, alpha: Any, bias: Any, residual: Any, activation: Any, first: Any, second: Any
) -> None:
    """Turn a row of a product into ``activation(alpha * row + bias + residual)``, in place.

    Args:
        row: Adjacent elements.
        alpha: A scale.
        bias: As long as the row, or empty.
        residual: As long as the row, or empty.
        activation: One of ``elementwise.kernels.opcodes``'s.
        first: Its first parameter.
        second: Its second parameter.
    """
    if alpha != np.float32(1):
        for i in range(row.size):
            row[i] *= alpha
    if bias.size:
        for i in range(row.size):
            row[i] += bias[i]
    if residual.size:
        for i in range(row.size):
            row[i] += residual[i]
    if activation != opcodes.NONE:
        activate(activation, row, row, first, second)


@helper
def finish_rows(c: Any, top: int, bottom: int, left: int, right: int, extras: Any) -> None:
    """Finish a block of a product.

    Args:
        c: The product, ``(rows, columns)``.
        top: Its first row.
        bottom: The row after its last.
        left: Its first column.
        right: The column after its last.
        extras: See ``EXTRAS``.
    """
    bias, residual, alpha, activation, first, second = extras
    empty = not bias.size and not residual.size
    if alpha == np.float32(1) and empty and activation == opcodes.NONE:
        return
    for row in range(top, bottom):
        own = residual[row % max(1, residual.shape[0])] if residual.size else bias[:0]
        finish(
            c[row, left:right], alpha, bias[left:right], own[left:right], activation, first, second
        )
