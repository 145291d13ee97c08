"""Conv, MaxPool and AveragePool of a library that has convolution and pooling of its own.

This module is public: a provider makes its ``overrides`` with it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from tenonnx.operators import Array, Namespace, OperatorTable
from tenonnx_array.windows import Windows, place

Convolve = Callable[[Namespace, Array, Array, Array | None, Windows, int], Array]
Greatest = Callable[[Namespace, Array, Windows], Array]
Average = Callable[[Namespace, Array, Windows, Array], Array]
Sizes = tuple[int, ...] | None


def window_table(convolve: Convolve, greatest: Greatest, average: Average) -> OperatorTable:
    """Return a table of the operators that slide windows over images X (N, C, D1, ...).

    Args:
        convolve: Correlates X with filters W (M, C / group, k1, ...), and adds B (M) if there is
            one: ``convolve(xp, X, W, B, windows, group)``.
        greatest: Returns the greatest element of each window: ``greatest(xp, X, windows)``.
        average: Returns the sum of each window, divided by how many elements count in it:
            ``average(xp, X, windows, counts)``; ``counts`` is numpy's, of the shape
            ``windows.output``.
    """
    table = OperatorTable()
    conv, pool = functools.partial(_conv, convolve), functools.partial(_average_pool, average)
    table.op("Conv", like=[place], without=["ceil_mode"])(conv)
    for since in (1, 8, 10):
        table.op("MaxPool", since=since, like=[place])(functools.partial(_max_pool, greatest))
    for since in (1, 7, 10, 19):
        table.op("AveragePool", since=since, like=[place])(pool)
    return table


def _conv(
    convolve: Convolve,
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


def _max_pool(
    greatest: Greatest,
    xp: Namespace,
    X: Array,
    *,
    kernel_shape: tuple[int, ...],
    storage_order: int = 0,
    **attributes: Any,
) -> Array:
    del storage_order  # it is about the places, a second output that these kernels have not
    return greatest(xp, X, place(tuple(X.shape[2:]), kernel_shape, **attributes))


def _average_pool(
    average: Average,
    xp: Namespace,
    X: Array,
    *,
    kernel_shape: tuple[int, ...],
    count_include_pad: int = 0,
    **attributes: Any,
) -> Array:
    windows = place(tuple(X.shape[2:]), kernel_shape, **attributes)
    return average(xp, X, windows, windows.divisors(padding=bool(count_include_pad)))
