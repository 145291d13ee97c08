"""Reductions of elements of any type over any axes, in one captured call."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from tenonnx_array.reduce import greatest_float
from tenonnx_cpu.buffers import empty, frozen
from tenonnx_cpu.capture.launch import Launch
from tenonnx_cpu.elementwise.kernels import operations as o
from tenonnx_cpu.elementwise.typed import DTYPES, OF_SIZE, code_of, first_of
from tenonnx_cpu.jit.runtime import JitKernel
from tenonnx_cpu.jit.scratch import pieces, worker_shares
from tenonnx_cpu.jit.threads.sharing import shared_out
from tenonnx_cpu.kernel_selection import NDArray
from tenonnx_cpu.reduce.kernels import (
    GREATEST,
    LEAST,
    MAGNITUDES,
    PIECE,
    PRODUCT,
    REAL_SQUARES,
    SQUARES,
    SUM,
    total_of,
)

FOLD = JitKernel("reduce.fold", "fold")

# Elements that are worth a second thread.
MIN_ELEMENTS_PER_THREAD = 1 << 15

REDUCTION_CODES = {
    "ArgMax": GREATEST,
    "ArgMin": LEAST,
    "ReduceL1": MAGNITUDES,
    "ReduceL2": SQUARES,
    "ReduceLogSum": SUM,
    "ReduceMax": GREATEST,
    "ReduceMean": SUM,
    "ReduceMin": LEAST,
    "ReduceProd": PRODUCT,
    "ReduceSum": SUM,
    "ReduceSumSquare": SQUARES,
}

# A length, and the bytes between elements along it.
Axis: TypeAlias = "tuple[int, int]"


@dataclass(frozen=True)
class _FoldLayout:
    shape: tuple[int, ...]
    numbers: NDArray
    threads: int


def folded(
    operator: str,
    x: NDArray,
    axes: tuple[int, ...] | None,
    keeps: bool,
    threads: int,
    last: bool = False,
) -> Launch | None:
    """Return a launch that reduces an array; ``None`` if the kernel does not.

    Args:
        operator: The operator's name.
        x: The array.
        axes: The axes; ``None`` for all.
        keeps: Whether they stay, of length 1.
        threads: How many to use at most.
        last: Whether the last place of equals is wanted, not the first.
    """
    run, source = FOLD.run, code_of(x.dtype)
    if run is None or source is None or not x.size or not x.ndim or not x.flags.aligned:
        return None
    if len(axes or ()) > x.ndim:
        return None
    cut = cut_of(operator, source, x.shape, x.strides, axes, keeps, threads, last)
    if cut is None:
        return None
    y = empty(cut.shape, np.dtype(np.int64) if operator.startswith("Arg") else x.dtype)
    (memory,) = pieces(worker_shares(8 * PIECE, cut.threads, np.uint8))
    arguments = first_of(x), y.reshape(-1).view(np.uint8), memory, cut.numbers, cut.threads
    return Launch(run, arguments, y)


def _typed(operator: str, source: int) -> tuple[int, int]:
    """Return the kind of an operator's reduction, and the type that elements are read as."""
    kind = REDUCTION_CODES[operator]
    if kind in (GREATEST, LEAST):
        return kind, o.UINT8 if source == o.BOOL else source
    if operator == "ReduceL2" and source in o.INTEGERS:
        return REAL_SQUARES, source
    if source in o.SIGNED and source != o.BOOL:
        return SUM if kind == MAGNITUDES else kind, o.SIGNED[source]
    return kind, source


@functools.lru_cache(maxsize=1024)
def cut_of(
    operator: str,
    source: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    axes: tuple[int, ...] | None,
    keeps: bool,
    threads: int,
    last: bool,
) -> _FoldLayout | None:
    """Return how to reduce an array; ``None`` if an axis is none of its, or there are none."""
    rank = len(shape)
    reduced = set(range(rank)) if axes is None else {a + rank if a < 0 else a for a in axes}
    if not reduced or not reduced <= set(range(rank)):
        return None
    kind, read = _typed(operator, source)
    element = total_of(kind, read)
    if element is None:
        return None
    every = list(zip(shape, strides, strict=True))
    kept = _merged(every[axis] for axis in range(rank) if axis not in reduced)
    # Results do not depend on the order of these.
    over = _merged(sorted((every[axis] for axis in reduced), key=lambda axis: -abs(axis[1])))
    finds, count = operator.startswith("Arg"), math.prod(shape[axis] for axis in reduced)
    is_reduced = not kept or (over and _inner(over, source) <= _inner(kept, source))
    width, step = (over or [(1, 0)]).pop() if is_reduced else kept.pop()
    if finds and (count >= 1 << 31 or (is_reduced and step != o.SIZES[source])):
        return None
    logarithm = operator == "ReduceLogSum"
    if logarithm and element in o.INTEGERS:
        return None
    divides, divided = operator == "ReduceMean", source if element in o.INTEGERS else element
    if divides and divided in o.INTEGERS and count > np.iinfo(DTYPES[divided]).max:
        return None
    rows, row_step = over.pop() if over else (1, 0)
    piece = min(PIECE, width)
    parts = 0 if is_reduced else -(-width // piece)
    units = math.prod(n for n, _ in kept) * max(parts, 1)
    grain, team = shared_out(units, math.prod(shape), MIN_ELEMENTS_PER_THREAD, threads)
    size = o.SIZES[element]
    numbers = [
        *(len(kept), len(over), math.prod(n for n, _ in over), rows, row_step, width, step),
        *(piece, parts, units, grain, -(-units // grain), kind, read, divided, size),
        *(finds, last, divides, operator == "ReduceL2", logarithm),
        *((OF_SIZE[size],) * 2 if read == element else o.variant(source, element)),
        *(8 if finds else o.SIZES[source], _bits(_operand(operator, source, count), element)),
        *(number for axis in (*kept[::-1], *over[::-1]) for number in axis),
    ]
    left = (
        1 if axis in reduced else n for axis, n in enumerate(shape) if keeps or axis not in reduced
    )
    return _FoldLayout(tuple(left), frozen(np.array(numbers, np.int64)), team)


def _operand(operator: str, source: int, count: int) -> float:
    """Return the divisor of sums, or the greatest root of a sum of squares that a type holds."""
    if operator != "ReduceL2":
        return count
    return greatest_float(DTYPES[source]) if source in o.INTEGERS else np.inf


def _bits(number: float, element: int) -> int:
    """Return a number in a type of elements, as the first bytes of an int64."""
    words = np.zeros(1, np.int64)
    dtype = DTYPES[element]
    words.view(dtype)[0] = np.array(number).astype(dtype)
    return int(words[0])


def _inner(axes: list[Axis], source: int) -> tuple[bool, int]:
    """Return what is the less, the better the last of some axes is to go along."""
    step = axes[-1][1]
    return step != o.SIZES[source], abs(step)


def _merged(given: Iterable[Axis]) -> list[Axis]:
    """Return the fewest axes that are the same, none of length 1."""
    axes: list[Axis] = []
    for length, step in given:
        if length == 1:
            continue
        above, apart = axes[-1] if axes else (0, 0)
        if axes and apart == step * length:
            axes[-1] = (above * length, step)
        else:
            axes.append((length, step))
    return axes
