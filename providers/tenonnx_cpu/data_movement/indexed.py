"""Reading and writing by index: GatherElements, ScatterElements, GatherND, ScatterND."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from tenonnx.by_name import cacheable
from tenonnx_cpu.buffers import TRACED, UNREAD, empty
from tenonnx_cpu.capture.capturable import Capturable
from tenonnx_cpu.capture.launch import Launch
from tenonnx_cpu.data_movement.kernels import (
    ADDED,
    GATHERED,
    GREATEST,
    LEAST,
    MULTIPLIED,
    WRITTEN,
)
from tenonnx_cpu.elementwise.kernels import operations as o
from tenonnx_cpu.elementwise.typed import OF_SIZE, code_of, first_of
from tenonnx_cpu.jit.runtime import JitKernel
from tenonnx_cpu.jit.scratch import pieces
from tenonnx_cpu.jit.threads.sharing import shared_out
from tenonnx_cpu.kernel_selection import Call, NDArray, Site, specialize

MOVE_ELEMENTS = JitKernel("data_movement.indexed", "move_elements")
MOVE_SLICES = JitKernel("data_movement.indexed", "move_slices")

# Elements that are worth a second thread.
MIN_INDEXED_ELEMENTS_PER_THREAD = 1 << 14

# Elements of a row that are moved at a time, where several threads share a row.
ROW_PIECE_ELEMENTS = 1 << 12

# Elements of a row of the last axis from which on rows are worth starting; others are of another.
MIN_ROW_ELEMENTS = 16

# Elements up to which numpy picks them in a third of the time that a launch takes (12 : 4 us).
MAX_PICKED_BY_NUMPY = 1 << 10

PLACE_DTYPES = (np.dtype(np.int64), np.dtype(np.int32))

WAYS = {"none": WRITTEN, "add": ADDED, "mul": MULTIPLIED, "max": GREATEST, "min": LEAST}

# The ways in which truth values meet, as bytes: "or" is the greatest of them, "and" the least.
OF_TRUTH = {ADDED: GREATEST, MULTIPLIED: LEAST}

# An array's shape and strides in bytes.
Form: TypeAlias = "tuple[tuple[int, ...], tuple[int, ...]]"


@specialize("GatherElements", "ScatterElements")
def specialize_elements(site: Site, plain: Call) -> Call | None:
    """Take elements of 1 to 8 bytes; those that meet others are numbers."""
    MOVE_ELEMENTS.request()
    way = _way(site)
    if way is None:
        return None
    axis = site.attribute("axis", 0)
    return Capturable(functools.partial(_elements, way, axis, site.threads, plain))


def _way(site: Site) -> int | None:
    if site.node.op_type.startswith("Gather"):
        return GATHERED
    return WAYS.get(site.attribute("reduction", "none"))


@cacheable
def _elements(
    way: int, axis: int, threads: int, plain: Call, data: NDArray, places: NDArray, *rest: NDArray
) -> Any:
    """Return a launch, or the result."""
    given = (data, places, *rest)
    element = _movable(way, *given)
    run, rank = MOVE_ELEMENTS.run, data.ndim
    fits = places.dtype in PLACE_DTYPES and -rank <= axis < rank == places.ndim
    if run is None or element is None or not fits or not _covers(data, places, rest, axis % rank):
        return plain(*given)
    y = empty(data.shape if rest else places.shape, data.dtype)
    updates = rest[0] if rest else y
    forms = tuple((x.shape, x.strides) for x in (y if rest else data, places, updates))
    cut = _elements_cut(
        way, element, axis % rank, *forms, y.itemsize, places.itemsize == 8, threads
    )
    if cut is None:
        return plain(*given)
    (wrong,) = pieces(((1,), np.int64))
    source = data.reshape(-1).view(np.uint8) if rest else first_of(data)
    arguments = (
        source, first_of(places), first_of(updates) if rest else UNREAD,
        y.reshape(-1).view(np.uint8), wrong, *cut,
    )  # fmt: skip
    return Launch(run, arguments, y, refusal=wrong, otherwise=plain)


def _movable(way: int, data: NDArray, places: NDArray, *updates: NDArray) -> int | None:
    """Return the type of elements; ``None`` if the kernels do not move them."""
    every = (data, places, *updates)
    if any(type(x) is not np.ndarray or not x.flags.aligned or not x.size for x in every):
        return None
    if data.dtype.hasobject or any(x.dtype != data.dtype for x in updates):
        return None
    if way > GATHERED and not data.flags.c_contiguous:
        return None
    if way <= WRITTEN:
        return OF_SIZE.get(data.itemsize)
    return code_of(data.dtype)


def _met(way: int, element: int) -> tuple[int, int]:
    """Return a way and a type by which elements meet, with those of truth values as bytes."""
    return (OF_TRUTH.get(way, way), o.UINT8) if element == o.BOOL else (way, element)


def _covers(data: NDArray, places: NDArray, updates: tuple[NDArray, ...], axis: int) -> bool:
    """Return whether places are for the data, and updates for the places."""
    if any(x.shape != places.shape for x in updates):
        return False
    sizes = enumerate(zip(places.shape, data.shape, strict=True))
    return all(n <= most or own == axis for own, (n, most) in sizes)


@functools.lru_cache(maxsize=1024)
def _elements_cut(
    way: int,
    element: int,
    axis: int,
    data: Form,
    places: Form,
    other: Form,
    size: int,
    wide: bool,
    threads: int,
) -> tuple[NDArray, int] | None:
    """Return the kernel's numbers, and how many threads are of use."""
    way, element = _met(way, element)
    if way > WRITTEN and element not in o.NUMBER_CODES:
        return None
    (shape, steps), rank = places, len(places[0])
    along = rank - 1
    if way == GATHERED and shape[-1] < MIN_ROW_ELEMENTS:
        along = max(range(rank), key=lambda own: (shape[own], own))
    last, width, count = along == rank - 1, shape[along], math.prod(shape)
    rows = count // width
    # Rows of one target, as of another axis, are written by one thread, so that the last one wins;
    # rows between whose elements others lie are picked together.
    whole = last and (way == GATHERED or axis == along)
    piece = (
        width if whole and (way != GATHERED or rows > threads) else min(width, ROW_PIECE_ELEMENTS)
    )
    cuts = -(-width // piece)
    units = rows * cuts if whole else cuts
    grain, team = shared_out(units, count, MIN_INDEXED_ELEMENTS_PER_THREAD, threads)
    numbers = [
        *(way, element, size, wide, width, data[0][axis], data[1][axis]),
        *(0 if axis == along else data[1][along], steps[along], other[1][along], rank - 1, rows),
        *(piece, cuts, units, grain, -(-units // grain), whole),
    ]
    for own in range(rank - 1, -1, -1):
        if own != along:
            numbers += [shape[own], 0 if own == axis else data[1][own], steps[own], other[1][own]]
    made = np.array(numbers, np.int64)
    made.flags.writeable = False
    return made, team


@specialize("GatherND", "ScatterND")
@specialize("GatherND", domain="com.microsoft")
def specialize_slices(site: Site, plain: Call) -> Call | None:
    """Take elements of 1 to 8 bytes, and numbers that meet others."""
    MOVE_SLICES.request()
    way, batch = _way(site), site.attribute("batch_dims", 0)
    if way is None:
        return None
    return Capturable(functools.partial(_slices, way, batch, site.threads, plain))


@cacheable
def _slices(way: int, batch: int, threads: int, plain: Call, *given: NDArray) -> Any:
    """Return a launch, or the result."""
    made = _sliced(way, batch, threads, plain, given)
    return plain(*given) if made is None else made


def _sliced(
    way: int,
    batch: int,
    threads: int,
    plain: Call,
    given: tuple[NDArray, ...],
    repeats: bool = False,
) -> Launch | None:
    """Return a launch; ``None`` if the kernel does not take the arrays.

    Args:
        way: One of ``data_movement.kernels``.
        batch: Axes that data and places have in common.
        threads: How many to use at most.
        plain: Does it where there are no such places.
        given: The data, the places, and what is written there.
        repeats: Whether all along these axes have the same places, which are there once.
    """
    data, places, *rest = given
    element, run = _movable(way, *given), MOVE_SLICES.run
    whole = all(x.flags.c_contiguous for x in given)
    if run is None or element is None or not whole or places.dtype not in PLACE_DTYPES:
        return None
    sizes = data.itemsize, places.itemsize == 8
    batched = data.shape[:batch] if repeats else places.shape[:batch]
    if batched != data.shape[:batch]:
        return None
    cut = _slices_cut(
        way, element, batch, data.shape, places.shape[batch:], *sizes, repeats, threads
    )
    if cut is None or any(x.shape != cut.shape for x in rest):
        return None
    y = empty(data.shape if rest else cut.shape, data.dtype)
    (wrong,) = pieces(((1,), np.int64))
    flat = [x.reshape(-1).view(np.uint8) for x in (data, *rest, y)]
    arguments = (
        flat[0], places.reshape(-1).view(np.uint8), flat[1] if rest else UNREAD, flat[-1], wrong,
        cut.numbers, cut.threads,
    )  # fmt: skip
    return Launch(run, arguments, y, refusal=wrong, otherwise=plain)


def gathered(site: Site, plain: Call, axis: int) -> Call:
    """Return what picks slices along an axis, such as embeddings, at places that a run computes."""
    MOVE_SLICES.request()
    if not axis:
        return functools.partial(_rows, site.threads, plain)
    MOVE_ELEMENTS.request()
    return functools.partial(_along, axis, site.threads, plain)


def _is_small(data: NDArray, places: NDArray, axis: int) -> bool:
    """Return whether numpy picks slices before a launch is made, which nobody captures."""
    if TRACED.get() is not None:
        return False
    return bool(places.size * data.size <= MAX_PICKED_BY_NUMPY * data.shape[axis])


@cacheable
def _rows(threads: int, plain: Call, data: NDArray, places: NDArray) -> Any:
    if not data.ndim or not places.ndim or _is_small(data, places, 0):
        return plain(data, places)
    made = _sliced(GATHERED, 0, threads, plain, (data, places.reshape(*places.shape, 1)))
    return plain(data, places) if made is None else made


@cacheable
def _along(axis: int, threads: int, plain: Call, data: NDArray, places: NDArray) -> Any:
    rank, made = data.ndim, None
    if not -rank <= axis < rank or type(places) is not np.ndarray or not places.ndim:
        return plain(data, places)
    axis %= rank
    if _is_small(data, places, axis):
        return plain(data, places)
    if axis == rank - 1:
        made = pick_columns(data, places.reshape(-1), threads)
    elif data.flags.c_contiguous:
        outer, inner = data.shape[:axis], data.shape[axis + 1 :]
        rows = data.reshape(math.prod(outer), data.shape[axis], math.prod(inner))
        given = rows, places.reshape(1, -1, 1)
        made = _sliced(GATHERED, 1, threads, plain, given, repeats=True)
    if made is None:
        return plain(data, places)
    shape = (*data.shape[:axis], *places.shape, *data.shape[axis + 1 :])
    return made._replace(result=made.result.reshape(shape), otherwise=plain)


@specialize("ArrayFeatureExtractor", domain="ai.onnx.ml")
def specialize_extractor(site: Site, plain: Call) -> Call:
    """Take columns of any type."""
    MOVE_ELEMENTS.request()
    return Capturable(functools.partial(_extracted, site.threads, plain))


@cacheable
def _extracted(threads: int, plain: Call, x: NDArray, places: NDArray) -> Any:
    made = None
    if x.ndim and type(places) is np.ndarray:
        rows = x if x.ndim > 1 else x.reshape(1, -1)
        made = pick_columns(rows, places.reshape(-1), threads)
    return plain(x, places) if made is None else made._replace(otherwise=plain)


def pick_columns(data: NDArray, places: NDArray, threads: int) -> Launch | None:
    """Return what picks columns of all rows; ``None`` if the kernel does not."""
    every = np.broadcast_to(places, (*data.shape[:-1], places.size))
    made: Launch | None = _elements(GATHERED, -1, threads, _nothing, data, every)
    return made


def _nothing(*_: NDArray) -> None:
    return None


@dataclass(frozen=True)
class _SlicesCut:
    shape: tuple[int, ...]
    numbers: NDArray
    threads: int


@functools.lru_cache(maxsize=1024)
def _slices_cut(
    way: int,
    element: int,
    batch: int,
    shape: tuple[int, ...],
    places: tuple[int, ...],
    size: int,
    wide: bool,
    repeats: bool,
    threads: int,
) -> _SlicesCut | None:
    """Return how to move slices; ``None`` if the places do not fit the data."""
    depth = places[-1] if places else 0
    if not 0 < depth <= len(shape) - batch:
        return None
    way, element = _met(way, element)
    if way > WRITTEN:
        operation = {ADDED: o.ADD, MULTIPLIED: o.MUL, GREATEST: o.MAX, LEAST: o.MIN}[way]
        if not o.is_known(operation, element):
            return None
        element = o.variant(operation, element)[1]
    inner = shape[batch + depth :]
    width, each = math.prod(inner), math.prod(places[:-1])
    units = each * math.prod(shape[:batch])
    grain, team = shared_out(units, units * width, MIN_INDEXED_ELEMENTS_PER_THREAD, threads)
    if way != GATHERED:  # slices of one place follow each other
        grain = units
    numbers = [
        *(way, element, size, wide, depth, width, each),
        *(math.prod(shape[batch:]) * size, repeats, units, grain, -(-units // grain)),
    ]
    for axis in range(batch, batch + depth):
        numbers += [shape[axis], math.prod(shape[axis + 1 :]) * size]
    made = np.array(numbers, np.int64)
    made.flags.writeable = False
    return _SlicesCut((*shape[:batch], *places[:-1], *inner), made, team)
