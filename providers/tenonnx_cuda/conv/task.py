"""A call of a convolution: what it is given, and what becomes of its results."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tenonnx.operators import Array
from tenonnx_array.windows import Windows
from tenonnx_cuda.elementwise.formulas import function_of
from tenonnx_cuda.kernel_selection import Target
from tenonnx_cuda.sources import SOURCE_TYPES, THREADS_PER_BLOCK, blocks, pointer


class Ending(NamedTuple):
    """The operations on a convolution's results.

    Attributes:
        activation: One of ``ENDINGS``.
        alpha: Its first parameter.
        beta: Its second parameter.
    """

    activation: str = ""
    alpha: float = 0.0
    beta: float = 0.0

    @property
    def factors(self) -> tuple[np.float32, np.float32]:
        """The parameters, as kernels take them."""
        return np.float32(self.alpha), np.float32(self.beta)


@dataclass(frozen=True)
class ConvTask:
    """A call, whose arrays have one element type.

    Attributes:
        target: The device.
        x: The image; of a transposed convolution the smaller one.
        w: The weights.
        b: A number for each map, if anything.
        z: What is added, of the result's shape, if anything.
        windows: Where they are.
        shape: The result's.
        group: Groups of channels.
        ending: What becomes of the results.
        transposed: It goes the other way.
        free: The result may have its channels last.
    """

    target: Target
    x: Array
    w: Array
    b: Array | None
    z: Array | None
    windows: Windows
    shape: tuple[int, ...]
    group: int
    ending: Ending
    transposed: bool
    free: bool


def finish(
    target: Target, sums: Array, y: Array, b: Array | None, z: Array | None, ending: Ending
) -> None:
    """Write the end of a convolution to y.

    Args:
        target: The device.
        sums: float32 [slices, ...], or y itself.
        y: The result.
        b: A number for each map.
        z: What is added; it lies as y does.
        ending: The activation.
    """
    element = SOURCE_TYPES[y.dtype]
    slices, kind = (1, element) if sums is y else (sums.shape[0], "float")
    launch = target.kernel(
        "conv/ending", "finish", T=element, S=kind, ACTIVATED=function_of(ending.activation)
    )
    inner = math.prod(y.shape[2:]) if y.flags.c_contiguous else 1
    counts = (np.int32(slices), np.int64(y.size), np.int32(y.shape[1]), np.int32(inner))
    arrays = (sums, pointer(b), pointer(z), y)
    launch(blocks(y.size), (THREADS_PER_BLOCK,), (*arrays, *counts, *ending.factors))
