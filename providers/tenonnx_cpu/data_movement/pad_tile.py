"""Operators that move elements as constants say: Pad, Tile, and others of their kind.

Where an element goes is found out by moving elements' numbers in their place.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from tenonnx.by_name import cacheable
from tenonnx_cpu.buffers import TRACED, empty, frozen
from tenonnx_cpu.capture.capturable import Capturable
from tenonnx_cpu.capture.launch import Launch, is_fixed
from tenonnx_cpu.capture.recent import MAX_KEYS
from tenonnx_cpu.jit.runtime import JitKernel
from tenonnx_cpu.kernel_selection import Call, NDArray, Site, specialize
from tenonnx_cpu.threading_config import shared_out

MOVE = JitKernel("data_movement.pad_tile", "move")

TEXT = np.dtype(object)

SOURCES = 16
# The number of the source of elements that no other source fills.
FILL = SOURCES

MAX_RUNS = 1 << 15
# Elements that a run should have on average, unless the result is at most ``SMALL``.
MIN_ELEMENTS_PER_RUN = 8

# Elements of a result that may be moved one by one, and up to which it is found out how.
SMALL, LARGE = 1 << 12, 1 << 20

# Bytes that are worth a second thread.
MIN_MOVED_BYTES_PER_THREAD = 1 << 17

# Numbers of repetitions whose moves a node keeps.
REPEATS = 4

# Small results whose moves nodes share: the same ones are in each layer of a model.
ALIKE = 64

# Bits of an element's place in a source.
PLACE_BITS = 40

NO_FILL = frozen(np.zeros(1, np.uint8))
UNKNOWN, VIEW = object(), object()


@dataclass(frozen=True)
class Moves:
    """The moves of a result's elements.

    Attributes:
        shape: The result's.
        runs: As the kernel takes them.
    """

    shape: tuple[int, ...]
    runs: NDArray


@specialize("Gather", "Pad", "ReverseSequence", "Tile", "Trilu")
@specialize("Pad", "Trilu", domain="com.microsoft")
def specialize_moves(site: Site, plain: Call) -> Call | None:
    """Take nodes whose inputs are constants but for the first; Tile's may be of shapes alone."""
    node = site.node
    if node.op_type == "Gather" and (site.constant(1) is None or site.dtype(0) == TEXT):
        index = node.inputs[1]
        is_one = index is not None and index.shape is not None and index.shape.rank() == 0
        axis = site.attribute("axis", 0)
        if is_one or site.dtype(0) == TEXT:
            return functools.partial(_one, plain) if is_one and not axis else None
        # For places that are computed.
        from tenonnx_cpu.data_movement.indexed import gather_along, gather_rows

        return gather_along(site, plain, axis) if axis else gather_rows(site, plain)
    parameters = [site.constant(n) for n in range(1, len(node.inputs))]
    given = zip(parameters, node.inputs[1:], strict=True)
    if any(value is not None and constant is None for constant, value in given):
        is_tile = node.op_type == "Tile" and len(parameters) == 1
        return Capturable(Repeating(plain, site.threads)) if is_tile else None
    fill = NO_FILL
    if node.op_type == "Pad":
        if not node.domain and (node.version or 1) < 11:
            return None
        if len(parameters) > 1 and parameters[1] is not None:
            fill = parameters[1].reshape(-1)
            if fill.size != 1:
                return None
        if site.attribute("mode", "constant") == "constant":
            parameters[1:2] = [np.array(-1)]

    return Capturable(mover(plain, parameters, site.threads, fill).call)


@cacheable
def _one(plain: Call, data: NDArray, index: NDArray) -> Any:
    """Return one slice, as a body of Loop takes in each turn: a view, as the array kernel's is."""
    try:
        return data[index.item(), ...]
    except (IndexError, ValueError):
        return plain(data, index)


@cacheable
class Repeating:
    """Repeats an array as often as shapes say.

    Args:
        plain: Repeats one by numbers from anywhere.
        threads: How many to use at most.
    """

    def __init__(self, plain: Call, threads: int) -> None:
        self._plain, self._threads = plain, threads
        self._movers: dict[bytes, Mover] = {}

    def __call__(self, x: NDArray, repeats: NDArray) -> Any:
        """Return a launch, or the result."""
        if not is_fixed(repeats):
            return self._plain(x, repeats)
        if (found := self._movers.get(key := repeats.tobytes())) is None:
            found = mover(self._plain, [np.frombuffer(key, np.int64)], self._threads)
            self._movers = dict([*self._movers.items(), (key, found)][-REPEATS:])
        return found.call(x, repeats)


def mover(
    plain: Call, parameters: Sequence[NDArray | None], threads: int, fill: NDArray = NO_FILL
) -> Mover:
    """Return what does as an array kernel does with its first input, whose elements it moves."""
    return Mover(ConstantMoves(plain, tuple(parameters)), plain, fill, 1, threads)


class FindsMoves(Protocol):
    """A way to find out how a result's elements are moved."""

    def trace(self, arrays: Sequence[NDArray]) -> Any:
        """Return the moves for such arrays; ``None`` if the kernel is not for them."""


@cacheable
@dataclass(frozen=True, eq=False)
class ConstantMoves:
    """The moves of an array kernel whose inputs are constants but for the first.

    Attributes:
        plain: The kernel.
        parameters: Its other inputs.
    """

    plain: Call
    parameters: tuple[NDArray | None, ...]

    def trace(self, arrays: Sequence[NDArray]) -> Any:
        """Return the moves, or ``VIEW`` if the result is one."""
        if arrays[0].size > LARGE:
            return None
        numbers = numbers_of(arrays[0], 0)
        moved = self.plain(numbers, *self.parameters)
        return VIEW if np.may_share_memory(moved, numbers) else traced(moved)


@cacheable
class Mover:
    """Moves elements of arrays whose shapes come again.

    Args:
        moves: Finds out how, for arrays of some shapes.
        plain: Does it for all.
        fill: The value of the result's elements to which nothing is moved.
        count: How many of a step's inputs are moved.
        threads: How many threads to use at most.

    Attributes:
        threads: The same number.
    """

    def __init__(
        self, moves: FindsMoves, plain: Call, fill: NDArray, count: int, threads: int
    ) -> None:
        self.threads = threads
        self._tracer = moves
        self._plain = plain
        self._count = count
        self._fill = fill
        self._fills: dict[np.dtype[Any], NDArray] = {}
        self._found: dict[Any, Any] = {}
        MOVE.request()

    def call(self, *given: Any) -> Any:
        """Return the result, or a launch of what makes it."""
        arrays = given[: self._count]
        moves = self._moves(arrays)
        if moves is None:
            return self._plain(*given)
        if moves is VIEW:
            return Launch(None, (), self._plain(*given))
        return self.launch(moves, arrays)

    def launch(
        self, moves: Moves, arrays: Sequence[NDArray], shared: tuple[int, int] | None = None
    ) -> Launch:
        """Return a launch of what moves arrays' elements.

        Args:
            moves: How.
            arrays: They.
            shared: Runs of a task, and threads; ``None`` for what suits the bytes.
        """
        dtype = arrays[0].dtype
        out = empty(moves.shape, dtype)
        sources = [bytes_of(array) for array in arrays]
        sources += [NO_FILL] * (SOURCES - len(sources))
        grain, team = shared or shared_out(
            len(moves.runs), out.nbytes, MIN_MOVED_BYTES_PER_THREAD, self.threads
        )
        if (fill := self._fills.get(dtype)) is None:
            fill = self._fills[dtype] = frozen(self._fill.astype(dtype).view(np.uint8))
        arguments = (
            moves.runs, *sources, fill, out.reshape(-1).view(np.uint8),
            out.itemsize, grain, team,
        )  # fmt: skip
        return Launch(MOVE.run, arguments, out)

    def takes(self, arrays: Sequence[Any]) -> bool:
        """Return whether the kernel moves such arrays' elements."""
        if MOVE.run is None or any(type(array) is not np.ndarray for array in arrays):
            return False
        dtype = arrays[0].dtype
        if dtype.hasobject or dtype.itemsize not in (1, 2, 4, 8):
            return False
        return all(array.dtype == dtype and array.flags.aligned for array in arrays)

    def _moves(self, arrays: Sequence[Any]) -> Any:
        if not self.takes(arrays):
            return None
        forms = tuple((array.shape, array.strides) for array in arrays)
        if forms not in self._found:
            latest = [*self._found.items(), (forms, UNKNOWN)][-MAX_KEYS:]
            self._found = dict(latest)
            # To find out how takes longer than numpy does: for shapes that come again, and where
            # the launch is captured.
            if TRACED.get() is None:
                return None
        found = self._found.get(forms, UNKNOWN)
        if found is UNKNOWN:
            self._found[forms] = found = self._tracer.trace(arrays)
        return found


def bytes_of(array: NDArray) -> NDArray:
    """Return the bytes of an array's first element, where they are."""
    if not array.size:
        return NO_FILL
    return array[(slice(1),) * array.ndim].reshape(1).view(np.uint8)


def place_in(source: Any) -> Any:
    """Return the number of a source's first element; those before it are in the same source."""
    return (source << PLACE_BITS) + (1 << PLACE_BITS - 1)


def numbers_of(array: NDArray, source: int) -> NDArray:
    """Return an array whose elements say where an array's elements lie in its memory."""
    steps = tuple(step // array.itemsize for step in array.strides)
    number = _numbers_of if array.size <= SMALL else _numbers_of.__wrapped__
    return number(array.shape, steps, source)


@functools.lru_cache(maxsize=ALIKE)
def _numbers_of(shape: tuple[int, ...], steps: tuple[int, ...], source: int) -> NDArray:
    numbers = np.full(shape, place_in(source), np.int64)
    for axis, (length, step) in enumerate(zip(shape, steps, strict=True)):
        numbers += (np.arange(length) * step).reshape(-1, *(1,) * (len(shape) - 1 - axis))
    return frozen(numbers)


def traced(numbers: NDArray) -> Moves | None:
    """Return the moves that put elements where their numbers are; none above 0 is the fill.

    Only from adjacent elements, in either direction, and from one again and again.
    """
    if not 0 < numbers.size <= LARGE or numbers.dtype != np.int64:
        return None
    trace = _traced if numbers.size <= SMALL else _traced.__wrapped__
    runs = trace(numbers.tobytes())
    return None if runs is None else Moves(numbers.shape, runs)


@functools.lru_cache(maxsize=ALIKE)
def _traced(numbers: bytes) -> NDArray | None:
    flat = np.frombuffer(numbers, np.int64)
    flat = np.where(flat <= 0, place_in(FILL), flat)
    steps = np.diff(flat)
    near = np.abs(steps) <= 1
    within = np.append(False, near)
    within[2:] &= ~near[:-1] | (steps[1:] == steps[:-1])
    starts = np.flatnonzero(~within)
    counts = np.diff(np.append(starts, flat.size))
    if starts.size > MAX_RUNS or (
        flat.size > SMALL and flat.size < MIN_ELEMENTS_PER_RUN * starts.size
    ):
        return None
    first, apart = flat[starts], np.where(counts > 1, np.append(steps, 1)[starts], 1)
    sources = first >> PLACE_BITS
    columns = (sources, first - place_in(sources), starts, counts, apart)
    return fixed(np.stack(columns, 1))


def fixed(runs: NDArray) -> NDArray:
    """Return runs as the kernel takes them, which nobody may change."""
    return frozen(np.ascontiguousarray(runs, np.int64))
