"""The step that counts a mask's tokens: by itself, as the process of a kept plan needs no more."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from tenonnx.by_name import cacheable
from tenonnx.process.later import Later

NDArray: TypeAlias = np.ndarray[Any, np.dtype[Any]]


def counted(place: int, rest: Later) -> Callable[..., Any]:
    """Return a step's call.

    Args:
        place: The mask's axis whose size is the number of tokens in all.
        rest: The calls of the steps that count for masks of other dtypes.
    """
    return functools.partial(_counted, place, rest)


@cacheable
def _counted(
    place: int, rest: Later, mask: NDArray, axes: NDArray, less: NDArray, place_: NDArray
) -> Any:
    if mask.ndim == 2 and mask.dtype == less.dtype == np.int64:
        lengths = np.add.reduce(mask, 1)
        lengths -= less
        return lengths.astype(np.int32), np.array(mask.shape[place], np.int32)
    add_up, subtract, shorten, shape_of, take, shorten_it = rest.open()
    lengths = shorten(subtract(add_up(mask, axes), less))
    return lengths, shorten_it(take(shape_of(mask), place_))
