"""Programs of elementwise instructions, and how they are laid over arrays that broadcast."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from tenonnx.by_name import cacheable
from tenonnx_cpu.buffers import F32, contiguous, empty, frozen
from tenonnx_cpu.capture.launch import Launch, done
from tenonnx_cpu.conv.channels_last import channels_first, channels_last, is_last
from tenonnx_cpu.elementwise.kernels import opcodes
from tenonnx_cpu.elementwise.kernels import operations as o
from tenonnx_cpu.elementwise.kernels.opcodes import (
    BLOCK_ELEMENTS,
    MAX_AXES,
    MAX_INPUTS,
    MEMORY,
    REGISTERS,
)
from tenonnx_cpu.elementwise.kernels.operations import FLOAT32, HALVES
from tenonnx_cpu.elementwise.typed import APPLY, DTYPES, code_of, launch
from tenonnx_cpu.jit.runtime import JitKernel
from tenonnx_cpu.jit.scratch import worker_floats
from tenonnx_cpu.kernel_selection import Call
from tenonnx_cpu.threading_config import shared_out

NDArray: TypeAlias = np.ndarray[Any, Any]
Shape: TypeAlias = tuple[int, ...]
# An array's shape, and strides in bytes of float32.
Form: TypeAlias = tuple[Shape, Shape]
# Its length, and every array's stride along it in elements.
Axis: TypeAlias = tuple[int, tuple[int, ...]]

RUN_PROGRAM = JitKernel("elementwise.program", "run_program")
ABSENT_ARRAY = frozen(np.zeros(4, np.uint8))

# Operations that a kernel without registers does faster, if they are all that there is to do.
ALONE = {
    opcodes.ABS: o.ABS,
    opcodes.ADD: o.ADD,
    opcodes.CEIL: o.CEIL,
    opcodes.DIV: o.DIV,
    opcodes.FLOOR: o.FLOOR,
    opcodes.MAX: o.MAX,
    opcodes.MIN: o.MIN,
    opcodes.MUL: o.MUL,
    opcodes.NEG: o.NEG,
    opcodes.RECIPROCAL: o.RECIPROCAL,
    opcodes.RELU: o.RELU,
    opcodes.SQRT: o.SQRT,
    opcodes.SUB: o.SUB,
}

# Elements times instructions that are worth a second thread.
MIN_OPERATIONS_PER_THREAD = 1 << 15

# Shorter rows cost more to tell apart than to compute, if there are many.
MIN_ROW_ELEMENTS, MAX_SHORT_ROWS = 48, 512


class Instruction(NamedTuple):
    """One instruction.

    Attributes:
        code: One of ``opcodes``.
        numbers: Its parameters.
        operands: How many of the node's inputs are operands; 0 for as many as it takes.
    """

    code: int
    numbers: tuple[float, float] = (0.0, 0.0)
    operands: int = 0


class Program:
    """Instructions in static single assignment, with operands by number.

    Arrays, numbers and results of instructions are numbered as they are added.

    Attributes:
        types: Those of arrays' elements: ``FLOAT32``, or 16-bit floats that are widened.
        result: The result's type, likewise.
    """

    def __init__(self) -> None:
        self.types: list[int] = []
        self.result = FLOAT32
        self.numbers: list[tuple[int, float]] = []
        self.shapes: list[Shape] = []
        self.arrays: list[int] = []
        self.lines: list[tuple[Instruction, tuple[int, ...], int]] = []
        self._count = 0

    def _next(self) -> int:
        self._count += 1
        return self._count - 1

    def array(self, element: int = FLOAT32) -> int:
        """Add an array to read."""
        self.types.append(element)
        self.arrays.append(self._next())
        return self.arrays[-1]

    def number(self, value: float, shape: Shape = ()) -> int:
        """Add a constant of one element."""
        self.numbers.append((self._next(), value))
        self.shapes.append(shape)
        return self._count - 1

    def add(self, line: Instruction, operands: Sequence[int]) -> int:
        """Add an instruction; the last one's result is the program's."""
        self.lines.append((line, tuple(operands), self._next()))
        return self._count - 1

    def single(self) -> tuple[int, tuple[int | NDArray, ...]] | None:
        """Return the operation on elements of any type that a program is, if it is one.

        Its operands are arrays by number, or constants.
        """
        if len(self.lines) > 1 or (operation := ALONE.get(self.lines[0][0].code)) is None:
            return None
        given: dict[int, int | NDArray] = {place: n for n, place in enumerate(self.arrays)}
        for (place, value), shape in zip(self.numbers, self.shapes, strict=True):
            given[place] = frozen(np.full(shape, value, np.float32))
        return operation, tuple(given[place] for place in self.lines[0][1])

    def fits(self) -> bool:
        """Return whether the interpreter has room for it."""
        return len(self.arrays) <= MAX_INPUTS and self._assemble() is not None

    def assemble(self) -> tuple[NDArray, NDArray]:
        """Return what the interpreter takes: lines, and numbers with parameters."""
        assembled = self._assemble()
        if assembled is None:
            raise ValueError(f"a program needs more than {REGISTERS} registers")
        numbers = [(value, 0.0) for _, value in self.numbers]
        numbers += [line.numbers for line, _, _ in self.lines]
        return frozen(np.array(assembled, np.int64)), frozen(np.array(numbers, np.float32))

    def _assemble(self) -> list[tuple[int, int, int, int]] | None:
        """Give values registers; every array keeps one, for it may be a scalar at run time."""
        place = {value: n for n, value in enumerate(self.arrays)}
        place |= {value: MAX_INPUTS + n for n, (value, _) in enumerate(self.numbers)}
        taken = len(self.numbers) + len(self.arrays)
        free = list(range(MAX_INPUTS + REGISTERS - 1, MAX_INPUTS + taken - 1, -1))
        last = {value: n for n, (_, operands, _) in enumerate(self.lines) for value in operands}
        code = []
        for n, (line, operands, result) in enumerate(self.lines):
            # Taken before its operands' are given back: loops whose arrays overlap are slow.
            if n == len(self.lines) - 1:
                place[result] = 0
            elif not free:
                return None
            else:
                place[result] = free.pop()
            x, z = place[operands[0]], place[operands[-1]]
            code.append((line.code, x, z, place[result]))
            ends = {value for value in operands if last[value] == n}
            free += [place[v] for v in ends if place[v] >= MAX_INPUTS + taken]
        return code


@cacheable
class ProgramCall:
    """A program on arrays of any shapes that broadcast, computed in float32.

    Args:
        program: What to run.
        plain: Computes the same from the same arguments, of any dtype.
        threads: How many threads to use at most.
    """

    def __init__(self, program: Program, plain: Call, threads: int) -> None:
        self._plain = plain
        self._threads = threads
        self._constants = tuple(program.shapes)
        self._rank = max(map(len, program.shapes), default=0)
        self._lines = len(program.lines)
        self._types, self._result = tuple(program.types), program.result
        self._code, self._numbers = program.assemble()
        self._single = program.single()
        self._absent = (ABSENT_ARRAY,) * (MAX_INPUTS - len(program.arrays))
        RUN_PROGRAM.request()
        if self._single is not None:
            APPLY.request()

    def __call__(self, *arrays: Any) -> Any:
        """Return the program's result."""
        return done(self.launch(*arrays), arrays)

    def launch(self, *arrays: Any) -> Any:
        """Return a launch that computes the program's result, or that."""
        run, types = RUN_PROGRAM.run, tuple([code_of(x.dtype) for x in arrays])
        result = self._result_of(types)
        if run is None or result is None:
            return self._plain(*arrays)
        made = self._of_places(run, arrays, result) or self._launch(run, arrays, result)
        return self._plain(*arrays) if made is None else made

    def _result_of(self, types: tuple[int | None, ...]) -> int | None:
        """Return the result's type for arrays of these; ``None`` if the program is for others.

        One of float32 takes 16-bit floats of one type, and rounds to it.
        """
        if types == self._types:
            return self._result
        is_wide = self._result == FLOAT32 and set(self._types) == {FLOAT32}
        return types[0] if is_wide and len(set(types)) == 1 and types[0] in HALVES else None

    def _of_places(self, run: Any, arrays: Sequence[NDArray], result: int) -> Launch | None:
        """Return a launch for images of which one has its channels last; the result has, too."""
        if not any(map(is_last, arrays)) or max(self._rank, *(x.ndim for x in arrays)) > 4:
            return None
        seen = [channels_last(x.reshape((1,) * (4 - x.ndim) + x.shape)) for x in arrays]
        made = self._launch(run, seen, result)
        return None if made is None else made._replace(result=channels_first(made.result))

    def _alone(self, arrays: Sequence[NDArray], result: int) -> Launch | None:
        """Return a launch of the only instruction, if arrays lie in order."""
        if self._single is None or not all(x.flags.c_contiguous for x in arrays):
            return None
        if result != FLOAT32 or any(x.dtype != F32 for x in arrays):
            return None
        operation, operands = self._single
        given = [arrays[x] if isinstance(x, int) else x for x in operands]
        return launch(operation, FLOAT32, given, F32, self._threads)

    def _launch(self, run: Any, arrays: Sequence[NDArray], result: int) -> Launch | None:
        if (alone := self._alone(arrays, result)) is not None:
            return alone
        laid = [in_rows(x) for x in arrays]
        layout = self._layout(laid, result)
        if layout is None:
            laid = [contiguous(x) for x in arrays]
            layout = self._layout(laid, result)
        if layout is None:
            laid = repeated(laid)
            layout = self._layout(laid, result)
        if layout is None:
            return None
        y = empty(layout.result, _dtype_of(result))
        threads = layout.threads
        arguments = (
            self._code, self._numbers, layout.shape, layout.strides,
            *map(first_of, laid), *self._absent,
            y.reshape(-1).view(np.uint8), worker_floats(MEMORY, threads), layout.grain, threads,
        )  # fmt: skip
        return Launch(run, arguments, y)

    def _layout(self, arrays: Sequence[NDArray], result: int) -> _ProgramLayout | None:
        forms, types = [], []
        for x in arrays:
            wider = F32.itemsize // x.itemsize
            forms.append((x.shape, tuple([step * wider for step in x.strides])))
            types.append(code_of(x.dtype) or FLOAT32)
        types += [FLOAT32] * len(self._absent)
        return lay_out(tuple(forms), self._constants, self._lines, self._threads, (*types, result))


def _dtype_of(element: int) -> np.dtype[Any]:
    """Return the dtype of float32, or of 16-bit floats."""
    if element in DTYPES:
        return DTYPES[element]
    import ml_dtypes  # for few models

    made: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
    return made


@dataclass(frozen=True)
class _ProgramLayout:
    result: Shape
    shape: NDArray
    strides: NDArray
    grain: int
    threads: int


@functools.lru_cache(maxsize=1024)
def lay_out(
    forms: tuple[Form, ...],
    constants: tuple[Shape, ...],
    lines: int,
    threads: int,
    types: tuple[int, ...] = (FLOAT32,) * (MAX_INPUTS + 1),
) -> _ProgramLayout | None:
    """Return how a program runs over arrays of these forms; ``None`` if it should not.

    ``types`` are those of ``MAX_INPUTS`` arrays' elements, and the result's.

    Raises:
        ValueError: The shapes do not broadcast.
    """
    result = np.broadcast_shapes(*(shape for shape, _ in forms), *constants)
    size = math.prod(result)
    if not size:
        return None
    axes, piece = repeating(merge_axes(forms, result))
    if len(axes) > MAX_AXES or (
        len(axes) > 1 and axes[-1][0] < MIN_ROW_ELEMENTS and size > MAX_SHORT_ROWS * axes[-1][0]
    ):
        return None
    axes = [(1, (0,) * len(forms))] * (MAX_AXES - len(axes)) + axes
    strides = np.zeros((MAX_INPUTS, MAX_AXES), np.int64)
    for axis, (_, steps) in enumerate(axes):
        strides[: len(forms), axis] = steps
    lengths = [length for length, _ in axes]
    width = lengths[-1]
    pieces = -(-width // piece)
    units = size // width * pieces
    grain, team = shared_out(units, size * (lines + 1), MIN_OPERATIONS_PER_THREAD, threads)
    shape = np.array([*lengths, len(constants), len(forms), piece, *types], np.int64)
    return _ProgramLayout(result, frozen(shape), frozen(strides), grain, team)


def repeating(axes: list[Axis]) -> tuple[list[Axis], int]:
    """Return axes of which short rows are one, and how much of a row is computed at a time.

    Along that one, an array's stride may be a number of elements that it repeats, such as a
    bias's; pieces are whole rows then.
    """
    if len(axes) < 2 or 2 * axes[-1][0] > BLOCK_ELEMENTS:
        return axes, BLOCK_ELEMENTS
    (count, apart), (width, steps) = axes[-2:]
    kinds = {(width, 1): 1, (0, 1): width, (0, 0): 0}
    joined = [kinds.get(pair) for pair in zip(apart, steps, strict=True)]
    if None in joined:
        return axes, BLOCK_ELEMENTS
    strides = tuple(kind for kind in joined if kind is not None)
    return [*axes[:-2], (count * width, strides)], BLOCK_ELEMENTS // width * width


def repeated(arrays: list[NDArray]) -> list[NDArray]:
    """Return arrays of short rows, of which each has its numbers: one that it has is repeated.

    The kernel then computes all rows as one.
    """
    width = max([x.shape[-1] for x in arrays if x.ndim], default=1)
    if width >= MIN_ROW_ELEMENTS:
        return arrays
    return [
        contiguous(np.broadcast_to(x, (*x.shape[:-1], width)))
        if x.ndim > 1 and x.shape[-1] == 1
        else x
        for x in arrays
    ]


def in_rows(x: NDArray) -> NDArray:
    """Return an array, or a copy, whose elements along the last axis are adjacent or the same."""
    if x.flags.c_contiguous:
        return contiguous(x)
    for length, step in zip(reversed(x.shape), reversed(x.strides), strict=True):
        if length > 1:
            return x if step in (0, x.itemsize) and x.flags.aligned else contiguous(x)
    return contiguous(x)


def first_of(x: NDArray) -> NDArray:
    """Return the bytes of an array's first element where it is: all that a kernel is told."""
    return (x[(slice(1),) * x.ndim].reshape(-1) if x.ndim else x.ravel()).view(np.uint8)


def merge_axes(forms: Sequence[Form], result: Shape) -> list[Axis]:
    """Return the fewest axes to loop over: lengths, and strides per array in elements."""
    rank = len(result)
    axes: list[Axis] = []
    padded = []
    for shape, strides in forms:
        own = [
            0 if n == 1 else step // F32.itemsize for n, step in zip(shape, strides, strict=True)
        ]
        padded.append([0] * (rank - len(shape)) + own)
    for axis in range(rank - 1, -1, -1):
        length = result[axis]
        if length == 1:
            continue
        steps = tuple(own[axis] for own in padded)
        if axes:
            inner, below = axes[0]
            if all(s == b * inner for s, b in zip(steps, below, strict=True)):
                axes[0] = (inner * length, below)
                continue
        axes.insert(0, (length, steps))
    return axes or [(1, (0,) * len(forms))]
