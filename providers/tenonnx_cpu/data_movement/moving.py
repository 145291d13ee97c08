"""Operators that move elements as constants say: Pad, Tile, and others of their kind.

Where an element goes is found out by moving elements' numbers in their place.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from tenonnx.records import record
from tenonnx_cpu.buffers import empty
from tenonnx_cpu.capture.capturable import KEPT, PATIENCE, Capturable
from tenonnx_cpu.capture.launch import Launch, is_fixed
from tenonnx_cpu.jit.runtime import JitKernel
from tenonnx_cpu.kernel_selection import Call, NDArray, Site, specialize
from tenonnx_cpu.threading_config import shared_out

MOVE = JitKernel("data_movement.moving", "move")

TEXT = np.dtype(object)

SOURCES = 16
FILL = SOURCES
"""The number of the source of elements that no other source fills."""

RUNS = 1 << 15
SHORT = 8
"""Runs at most, and elements that one should have unless the result is ``SMALL``."""

SMALL, LARGE = 1 << 12, 1 << 20
"""Elements of a result that may be moved one by one, and up to which it is found out how."""

ENOUGH = 1 << 17
"""Bytes that are worth a second thread."""

PLACES = 40
"""Bits of an element's place in a source."""

NOTHING = np.zeros(1, np.uint8)
UNKNOWN, VIEW = object(), object()


@record
class Moves:
    """The moves of a result's elements.

    Attributes:
        shape: The result's.
        runs: As the kernel takes them.
    """

    shape: tuple[int, ...]
    runs: NDArray


@specialize("DepthToSpace", "Gather", "Pad", "ReverseSequence", "SpaceToDepth", "Tile")
def specialize_moves(site: Site, plain: Call) -> Call | None:
    """Takes nodes whose inputs are constants but for the first; Tile's may be of shapes alone."""
    node = site.node
    if node.op_type == "Gather" and (site.constant(1) is None or site.dtype(0) == TEXT):
        index = node.inputs[1]
        is_one = index is not None and index.shape is not None and index.shape.rank() == 0
        return functools.partial(_one, plain) if is_one and not site.attribute("axis", 0) else None
    parameters = [site.constant(n) for n in range(1, len(node.inputs))]
    given = zip(parameters, node.inputs[1:], strict=True)
    if any(value is not None and constant is None for constant, value in given):
        is_tile = node.op_type == "Tile" and len(parameters) == 1
        return _repeated(plain, site.threads) if is_tile else None
    fill = NOTHING
    if node.op_type == "Pad":
        if (node.version or 1) < 11:
            return None
        if len(parameters) > 1 and parameters[1] is not None:
            fill = parameters[1].reshape(-1)
            if fill.size != 1:
                return None
        if site.attribute("mode", "constant") == "constant":
            parameters[1:2] = [np.array(-1)]

    return Capturable(_mover(plain, parameters, fill, site.threads).call)


def _one(plain: Call, data: NDArray, index: NDArray) -> Any:
    """Returns one slice, as a body of Loop takes in each turn: a view, as the array kernel's is."""
    try:
        return data[index.item(), ...]
    except (IndexError, ValueError):
        return plain(data, index)


def _repeated(plain: Call, threads: int) -> Capturable:
    """Returns what repeats an array as often as shapes say."""

    @functools.lru_cache(maxsize=4)
    def mover(repeats: bytes) -> Mover:
        return _mover(plain, [np.frombuffer(repeats, np.int64)], NOTHING, threads)

    def call(x: NDArray, repeats: NDArray) -> Any:
        return mover(repeats.tobytes()).call(x, repeats) if is_fixed(repeats) else plain(x, repeats)

    return Capturable(call)


def _mover(plain: Call, parameters: Sequence[NDArray | None], fill: NDArray, threads: int) -> Mover:
    """Returns what does as an array kernel does with its first input."""

    def trace(arrays: Sequence[NDArray]) -> Any:
        if arrays[0].size > LARGE:
            return None
        numbers = numbers_of(arrays[0], 0)
        moved = plain(numbers, *parameters)
        return VIEW if np.may_share_memory(moved, numbers) else traced(moved)

    return Mover(trace, plain, fill, 1, threads)


class Mover:
    """Moves elements of arrays whose shapes come again.

    Args:
        trace: Returns how, for arrays of some shapes; ``None`` if the kernel is not for them.
        plain: Does it for all.
        fill: The value of the result's elements to which nothing is moved.
        count: How many of a step's inputs are moved.
        threads: How many threads to use at most.
    """

    def __init__(self, trace: Any, plain: Call, fill: NDArray, count: int, threads: int) -> None:
        self._trace = trace
        self._plain = plain
        self._count = count
        self._threads = threads
        self._fills = functools.cache(lambda dtype: fill.astype(dtype).view(np.uint8))
        self._patience = PATIENCE
        self._found: dict[Any, Any] = {}
        MOVE.request()

    def call(self, *given: Any) -> Any:
        """Returns the result, or a launch of what makes it."""
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
        """Returns a launch of what moves arrays' elements.

        Args:
            moves: How.
            arrays: They.
            shared: Runs of a task, and threads; ``None`` for what suits the bytes.
        """
        dtype = arrays[0].dtype
        out = empty(moves.shape, dtype)
        sources = [bytes_of(array) for array in arrays]
        sources += [NOTHING] * (SOURCES - len(sources))
        grain, team = shared or shared_out(len(moves.runs), out.nbytes, ENOUGH, self._threads)
        arguments = (
            moves.runs, *sources, self._fills(dtype), out.reshape(-1).view(np.uint8),
            out.itemsize, grain, team,
        )  # fmt: skip
        return Launch(MOVE.run, arguments, out)

    def takes(self, arrays: Sequence[Any]) -> bool:
        """Says whether the kernel moves such arrays' elements."""
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
            if not self._patience:
                return None
            self._patience -= 1
            is_first = not self._found
            latest = [*self._found.items(), (forms, UNKNOWN)][-KEPT:]
            self._found = dict(latest)
            # To find out how takes longer than numpy does: for the first shapes, and those that
            # come again.
            if not is_first:
                return None
        found = self._found.get(forms, UNKNOWN)
        if found is UNKNOWN:
            self._found[forms] = found = self._trace(arrays)
        return found


def bytes_of(array: NDArray) -> NDArray:
    """Returns the bytes of an array's first element, where they are."""
    if not array.size:
        return NOTHING
    return array[(slice(1),) * array.ndim].reshape(1).view(np.uint8)


def place_in(source: Any) -> Any:
    """Returns the number of a source's first element; those before it are in the same source."""
    return (source << PLACES) + (1 << PLACES - 1)


def numbers_of(array: NDArray, source: int) -> NDArray:
    """Returns an array whose elements say where an array's elements lie in its memory."""
    numbers = np.full(array.shape, place_in(source), np.int64)
    for axis, (length, step) in enumerate(zip(array.shape, array.strides, strict=True)):
        steps = np.arange(length) * (step // array.itemsize)
        numbers += steps.reshape(-1, *(1,) * (array.ndim - 1 - axis))
    return numbers


def traced(numbers: NDArray) -> Moves | None:
    """Returns the moves that put elements where their numbers are; -1 is the fill.

    Only from adjacent elements, in either direction, and from one again and again.
    """
    flat = numbers.reshape(-1)
    if not flat.size or flat.size > LARGE or numbers.dtype != np.int64:
        return None
    flat = np.where(flat < 0, place_in(FILL), flat)
    steps = np.diff(flat)
    near = np.abs(steps) <= 1
    within = np.append(False, near)
    within[2:] &= ~near[:-1] | (steps[1:] == steps[:-1])
    starts = np.flatnonzero(~within)
    counts = np.diff(np.append(starts, flat.size))
    if starts.size > RUNS or (flat.size > SMALL and flat.size < SHORT * starts.size):
        return None
    first, apart = flat[starts], np.where(counts > 1, np.append(steps, 1)[starts], 1)
    sources = first >> PLACES
    columns = (sources, first - place_in(sources), starts, counts, apart)
    return Moves(numbers.shape, fixed(np.stack(columns, 1)))


def fixed(runs: NDArray) -> NDArray:
    """Returns runs as the kernel takes them, which nobody may change."""
    runs = np.ascontiguousarray(runs, np.int64)
    runs.flags.writeable = False
    return runs
