"""Conv, MaxPool and AveragePool of a library that has convolution and pooling of its own.

This module is public: a provider makes its ``overrides`` with it.
"""

from __future__ import annotations

from collections.abc import Callable

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

    @table.op("Conv")
    def conv(
        xp: Namespace,
        X: Array,
        W: Array,
        B: Array | None = None,
        *,
        auto_pad: str = "NOTSET",
        dilations: Sizes = None,
        group: int = 1,
        kernel_shape: Sizes = None,
        pads: Sizes = None,
        strides: Sizes = None,
    ) -> Array:
        size, kernel = tuple(X.shape[2:]), kernel_shape or tuple(W.shape[2:])
        return convolve(xp, X, W, B, place(size, kernel, strides, dilations, pads, auto_pad), group)

    @table.op("MaxPool")
    @table.op("MaxPool", since=8)
    @table.op("MaxPool", since=10)
    def max_pool(
        xp: Namespace,
        X: Array,
        *,
        kernel_shape: tuple[int, ...],
        auto_pad: str = "NOTSET",
        ceil_mode: int = 0,
        dilations: Sizes = None,
        pads: Sizes = None,
        storage_order: int = 0,
        strides: Sizes = None,
    ) -> Array:
        del storage_order  # it is about the places, a second output that these kernels have not
        size = tuple(X.shape[2:])
        windows = place(size, kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)
        return greatest(xp, X, windows)

    @table.op("AveragePool")
    @table.op("AveragePool", since=7)
    @table.op("AveragePool", since=10)
    @table.op("AveragePool", since=19)
    def average_pool(
        xp: Namespace,
        X: Array,
        *,
        kernel_shape: tuple[int, ...],
        auto_pad: str = "NOTSET",
        ceil_mode: int = 0,
        count_include_pad: int = 0,
        dilations: Sizes = None,
        pads: Sizes = None,
        strides: Sizes = None,
    ) -> Array:
        size = tuple(X.shape[2:])
        windows = place(size, kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)
        return average(xp, X, windows, windows.divisors(padding=bool(count_include_pad)))

    return table
