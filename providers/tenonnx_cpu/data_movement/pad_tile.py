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
from tenonnx_cpu.data_movement.moves import MAX_TRACED_ELEMENTS, SOURCES, Moves, numbers_of, traced
from tenonnx_cpu.jit.runtime import JitKernel
from tenonnx_cpu.jit.threads.sharing import shared_out
from tenonnx_cpu.kernel_selection import Call, NDArray, Site, specialize

MOVE = JitKernel("data_movement.pad_tile", "move")

TEXT = np.dtype(object)

# Bytes that are worth a second thread.
MIN_MOVED_BYTES_PER_THREAD = 1 << 17

# Numbers of repetitions whose moves a node keeps.
REPEATS = 4

NO_FILL = frozen(np.zeros(1, np.uint8))
UNKNOWN, VIEW = object(), object()


@specialize("Gather", "Pad", "ReverseSequence", "Tile", "Trilu")
@specialize("Pad", "Trilu", domain="com.microsoft")
def specialize_moves(site: Site, plain: Call) -> Call | None:
    """Take nodes whose inputs are constants but for the first; Tile's may be of shapes alone."""
    node = site.node
    if node.op_type == "Gather":
        return _gathered(site, plain)
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


def _gathered(site: Site, plain: Call) -> Call | None:
    """Take places that are constants, one place, or any by another kernel."""
    index, axis = site.node.inputs[1], site.attribute("axis", 0)
    is_constant, is_text = site.constant(1) is not None, site.dtype(0) == TEXT
    if is_text or not is_constant:
        is_one = index is not None and index.shape is not None and index.shape.rank() == 0
        if is_one or is_text:
            return functools.partial(_one, plain) if is_one and not axis else None
    # Few models need it.
    from tenonnx_cpu.data_movement.indexed import gathered

    by_place = gathered(site, plain, axis)
    if not is_constant:
        return Capturable(by_place)
    moves = ConstantMoves(plain, (site.constant(1),))
    return Capturable(Mover(moves, by_place, NO_FILL, 1, site.threads).call)


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
        if arrays[0].size > MAX_TRACED_ELEMENTS:
            return None
        # The size of the result, for an eighth of the bytes of all its elements' numbers.
        if self.plain(np.empty(arrays[0].shape, bool), *self.parameters).size > MAX_TRACED_ELEMENTS:
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
