"""The CUDA sources, which are beside the modules that launch them, and how a kernel is made."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import ml_dtypes
import numpy as np

from tenonnx_cuda.capture.tracer import start
from tenonnx_cuda.elementwise.formulas import endings
from tenonnx_cuda.platform import Grid, Launcher, Platform

SOURCES: Final = Path(__file__).parent

# The sources' names of the element types of activations.
SOURCE_TYPES: Final = {
    np.dtype(np.float32): "f32",
    np.dtype(np.float16): "f16",
    np.dtype(ml_dtypes.bfloat16): "bf16",
}

INCLUDE: Final = re.compile(r'^#include "([\w/]+)\.cuh".*$', re.MULTILINE)

# The macro of kernels that multiply for long: one that waits beside them takes of their room.
ALONE_MACRO: Final = {"ALONE": 1}

# A pointer to nothing, as an argument.
NULL: Final = np.uintp(0)

THREADS_PER_BLOCK: Final = 256

# Blocks that a grid may have along its second axis and its third.
LARGEST_GRID: Final = 65535


@functools.cache
def header(name: str) -> str:
    """Return what several sources include."""
    return endings() if name == "endings" else (SOURCES / f"{name}.cuh").read_text()


@functools.cache
def source(name: str) -> str:
    """Return a file of kernels as it is compiled: by itself, with what it includes in it."""
    text = (SOURCES / f"{name}.cu").read_text()
    return header("common") + INCLUDE.sub(lambda found: header(found[1]), text)


class Kernel:
    """A compiled kernel, whose launches can be repeated."""

    def __init__(self, launcher: Launcher) -> None:
        self._launcher = launcher

    def __call__(self, grid: Grid, block: Grid, arguments: Sequence[Any]) -> None:
        """Start it: blocks, threads of a block; arrays, numpy scalars, ``DynamicNumber``s."""
        others = [each for each in arguments if not isinstance(each, np.generic)]
        start(self._launcher(grid, block, arguments), *others)


def kernel(platform: Platform, file: str, name: str, **macros: Any) -> Kernel:
    """Return a kernel, compiled for some values of its macros.

    Args:
        platform: The device.
        file: Which of the sources, from the provider's folder on.
        name: The kernel in it.
        macros: Their values.
    """
    options = tuple(f"-D{key}={value}" for key, value in sorted(macros.items()))
    return Kernel(platform.compile(source(file), name, options))


def pointer(array: Any) -> Any:
    """Return an array as an argument; a null pointer for none."""
    return NULL if array is None else array


def blocks(count: int) -> tuple[int]:
    """Return a grid of blocks of ``THREADS_PER_BLOCK``, with a thread for each of some things."""
    return (max(1, -(-count // THREADS_PER_BLOCK)),)


def is_aligned(*arrays: Any) -> bool:
    """Return whether arrays begin where 16 bytes can be read at once."""
    return all(array.data.ptr % 16 == 0 for array in arrays)
