"""Reductions of elements of any type over any axes, in one captured call."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np

from tenonnx_cpu.buffers import empty
from tenonnx_cpu.capture.launch import Launch
from tenonnx_cpu.elementwise.kernels import operations as o
from tenonnx_cpu.elementwise.typed import DTYPES, OF_SIZE, code_of, first_of
from tenonnx_cpu.jit.runtime import JitKernel
from tenonnx_cpu.jit.scratch import pieces, worker_shares
from tenonnx_cpu.kernel_selection import NDArray
from tenonnx_cpu.reduce.kernels import NOTHING, PIECE, SQUARED
from tenonnx_cpu.threading_config import shared_out

FOLD = JitKernel("reduce.fold", "fold")

# Elements that are worth a second thread.
MIN_ELEMENTS_PER_THREAD = 1 << 15

MAPS = {"ReduceL1": o.ABS, "ReduceL2": SQUARED, "ReduceSumSquare": SQUARED}
# Operations on each element, if there is one, and on two, if they are not added.
COMBINED = {"ReduceMax": o.MAX, "ReduceMin": o.MIN, "ReduceProd": o.MUL}


@dataclass(frozen=True)
class _FoldLayout:
    shape: tuple[int, ...]
    numbers: NDArray
    threads: int


def folded(
    operator: str, x: NDArray, axes: tuple[int, ...] | None, keeps: bool, threads: int
) -> Launch | None:
    """Return a launch that reduces an array; ``None`` if the kernel does not.

    Args:
        operator: The operator's name.
        x: The array.
        axes: The axes; ``None`` for all.
        keeps: Whether they stay, of length 1.
        threads: How many to use at most.
    """
    run, source = FOLD.run, code_of(x.dtype)
    if run is None or source is None or not x.size or not x.ndim or not x.flags.aligned:
        return None
    element = _element(operator, source)
    if element is None or len(axes or ()) > x.ndim:
        return None
    cut = cut_of(operator, source, element, x.shape, x.strides, axes, keeps, threads)
    if cut is None:
        return None
    y = empty(cut.shape, x.dtype)
    (memory,) = pieces(worker_shares(16 * PIECE, cut.threads, np.uint8))
    arguments = first_of(x), y.reshape(-1).view(np.uint8), memory, cut.numbers, cut.threads
    return Launch(run, arguments, y)


def _element(operator: str, source: int) -> int | None:
    """Return the type that elements are combined in; ``None`` if that is left to numpy.

    It is that of numpy's form, but for sums of float32, which are of float64.
    """
    if operator in ("ReduceMax", "ReduceMin"):
        return o.UINT8 if source == o.BOOL else o.FLOAT32 if source in o.HALVES else source
    if source == o.BOOL or (operator == "ReduceL2" and source == o.UINT64):
        return None
    if operator == "ReduceL2" or source == o.FLOAT32:
        return o.FLOAT32 if source in o.HALVES else o.FLOAT64
    return o.FLOAT32 if source in o.HALVES else source


@functools.lru_cache(maxsize=1024)
def cut_of(
    operator: str,
    source: int,
    element: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    axes: tuple[int, ...] | None,
    keeps: bool,
    threads: int,
) -> _FoldLayout | None:
    """Return how to reduce an array; ``None`` if an axis is none of its, or there are none."""
    rank = len(shape)
    reduced = set(range(rank)) if axes is None else {a + rank if a < 0 else a for a in axes}
    if not reduced or not reduced <= set(range(rank)):
        return None
    *outer, last = _merged(shape, strides, reduced)
    kept = [axis for axis in reversed(outer) if not axis[2]]
    over = [axis for axis in reversed(outer) if axis[2]]
    (width, step, is_reduced), rows = last, math.prod(n for n, _, _ in over)
    piece = min(PIECE, width)
    pieces = 0 if is_reduced else -(-width // piece)
    units = math.prod(n for n, _, _ in kept) * max(pieces, 1)
    grain, team = shared_out(units, math.prod(shape), MIN_ELEMENTS_PER_THREAD, threads)
    count, divides = math.prod(shape[axis] for axis in reduced), operator == "ReduceMean"
    if divides and element in o.INTEGERS and count > np.iinfo(DTYPES[element]).max:
        return None
    mapped = MAPS.get(operator, NOTHING)
    if element in o.INTEGERS and o.SIGNED.get(element):
        mapped = mapped if mapped == SQUARED else NOTHING
    size = o.SIZES[element]
    same = source == element or (source == o.BOOL and element == o.UINT8)
    numbers = [
        *(len(kept), len(over), rows, width, step, piece, pieces, units, grain),
        -(-units // grain),
        *((NOTHING, NOTHING) if same else o.variant(element, source)),
        *(size, OF_SIZE[size]),
        *(mapped, o.variant(o.MUL if mapped == SQUARED else mapped, element)[1]),
        *o.variant(COMBINED.get(operator, o.ADD), element),
        *(divides, operator == "ReduceL2", element),
        *((OF_SIZE[size],) * 2 if same else o.variant(source, element)),
        *(o.SIZES[source], _bits(count, element)),
        *(number for length, apart, _ in (*kept, *over) for number in (length, apart)),
    ]
    made = np.array(numbers, np.int64)
    made.flags.writeable = False
    left = (
        1 if axis in reduced else n for axis, n in enumerate(shape) if keeps or axis not in reduced
    )
    return _FoldLayout(tuple(left), made, team)


def _bits(count: int, element: int) -> int:
    """Return a number in a type of elements, as the first bytes of an int64."""
    words = np.zeros(1, np.int64)
    dtype = DTYPES[element]
    words.view(dtype)[0] = np.array(count).astype(dtype)
    return int(words[0])


def _merged(
    shape: tuple[int, ...], strides: tuple[int, ...], reduced: set[int]
) -> list[tuple[int, int, bool]]:
    """Return the fewest axes: lengths, bytes between elements, and whether they are reduced."""
    axes: list[tuple[int, int, bool]] = []
    for axis, (length, step) in enumerate(zip(shape, strides, strict=True)):
        if length == 1:
            continue
        above, apart, kind = axes[-1] if axes else (0, 0, False)
        if axes and kind == (axis in reduced) and apart == step * length:
            axes[-1] = (above * length, step, kind)
        else:
            axes.append((length, step, axis in reduced))
    return axes or [(1, 0, True)]
