"""Conv, MaxPool and AveragePool of a library that has convolution and pooling of its own.

This module is public: a provider makes its ``overrides`` with it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tenonnx.operators import Array, Namespace, OperatorTable
from tenonnx_array.windows import Windows, place

Convolve = Callable[[Namespace, Array, Array, Array | None, Windows, int], Array]
Greatest = Callable[[Namespace, Array, Windows], Array]
Average = Callable[[Namespace, Array, Windows, Array], Array]
Sizes = tuple[int, ...] | None


def window_table(convolve: Convolve, greatest: Greatest, average: Average) -> OperatorTable:
    """Returns a table of the operators that slide windows over images X (N, C, D1, ...).

    Args:
        convolve: Correlates X with filters W (M, C / group, k1, ...), and adds B (M) if there is
            one: ``convolve(xp, X, W, B, windows, group)``.
        greatest: Returns the greatest element of each window: ``greatest(xp, X, windows)``.
        average: Returns the sum of each window, divided by how many elements count in it:
            ``average(xp, X, windows, counts)``; ``counts`` is numpy's, of the shape
            ``windows.output``.
    """
    table = OperatorTable()

    @table.op("Conv", like=[place], without=["ceil_mode"])
    def conv(
        xp: Namespace,
        X: Array,
        W: Array,
        B: Array | None = None,
        *,
        group: int = 1,
        kernel_shape: Sizes = None,
        **attributes: Any,
    ) -> Array:
        size, kernel = tuple(X.shape[2:]), kernel_shape or tuple(W.shape[2:])
        return convolve(xp, X, W, B, place(size, kernel, **attributes), group)

    @table.op("MaxPool", like=[place])
    @table.op("MaxPool", since=8, like=[place])
    @table.op("MaxPool", since=10, like=[place])
    def max_pool(
        xp: Namespace,
        X: Array,
        *,
        kernel_shape: tuple[int, ...],
        storage_order: int = 0,
        **attributes: Any,
    ) -> Array:
        del storage_order  # it is about the places, a second output that these kernels have not
        windows = place(tuple(X.shape[2:]), kernel_shape, **attributes)
        return greatest(xp, X, windows)

    @table.op("AveragePool", like=[place])
    @table.op("AveragePool", since=7, like=[place])
    @table.op("AveragePool", since=10, like=[place])
    @table.op("AveragePool", since=19, like=[place])
    def average_pool(
        xp: Namespace,
        X: Array,
        *,
        kernel_shape: tuple[int, ...],
        count_include_pad: int = 0,
        **attributes: Any,
    ) -> Array:
        windows = place(tuple(X.shape[2:]), kernel_shape, **attributes)
        return average(xp, X, windows, windows.divisors(padding=bool(count_include_pad)))

    return table
