"""Programs of elementwise instructions, and how they are laid over arrays that broadcast."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from tenonnx.by_name import cacheable
from tenonnx.graph.shape_checks import broadcast_shapes
from tenonnx_cpu.buffers import F32, contiguous, empty, frozen
from tenonnx_cpu.capture.launch import Launch, done
from tenonnx_cpu.conv.channels_last import channels_first, channels_last, is_last
from tenonnx_cpu.elementwise.kernels import opcodes
from tenonnx_cpu.elementwise.kernels import operations as o
from tenonnx_cpu.elementwise.kernels.opcodes import (
    MAX_AXES,
    MAX_INPUTS,
    MEMORY,
    MIN_ROW_ELEMENTS,
    REGISTERS,
)
from tenonnx_cpu.elementwise.kernels.operations import FLOAT32, HALVES
from tenonnx_cpu.elementwise.typed import APPLY, DIFFER, DTYPES, code_of, launch
from tenonnx_cpu.jit.runtime import JitKernel
from tenonnx_cpu.jit.scratch import worker_floats
from tenonnx_cpu.kernel_selection import Call

NDArray: TypeAlias = np.ndarray[Any, Any]
Shape: TypeAlias = tuple[int, ...]

RUN_PROGRAM = JitKernel("elementwise.program", "run_program")
PLAN_PROGRAM = JitKernel("elementwise.plan_program", "plan_program")
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
        PLAN_PROGRAM.request()
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
        types = [code_of(x.dtype) or FLOAT32 for x in arrays]
        laid, layout = [in_rows(x) for x in arrays], None
        for make in (None, contiguous_all, repeated):
            laid = laid if make is None else make(laid)
            if (layout := self._layout(laid, types, result)) is not None:
                break
        if layout is None:
            return None
        y = empty(layout.result, _dtype_of(result))
        numbers, strides, threads = layout.numbers, layout.strides, layout.threads
        arguments = (
            self._code, self._numbers, numbers, strides,
            *map(first_of, laid), *self._absent,
            y.reshape(-1).view(np.uint8), worker_floats(MEMORY, threads), layout.grain, threads,
        )  # fmt: skip
        return Launch(run, arguments, y)

    def _layout(
        self, arrays: Sequence[NDArray], types: Sequence[int], result: int
    ) -> ProgramLayout | None:
        types = [*types, *[FLOAT32] * len(self._absent), result]
        given = self._lines, len(self._constants), types, self._rank, self._threads
        return lay_out(arrays, *given)


def _dtype_of(element: int) -> np.dtype[Any]:
    """Return the dtype of float32, or of 16-bit floats."""
    if element in DTYPES:
        return DTYPES[element]
    import ml_dtypes

    made: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
    return made


class ProgramLayout(NamedTuple):
    """The axes and tasks of a program over arrays.

    Attributes:
        result: The result's shape.
        numbers: As ``run_program`` takes them as its ``shape``.
        strides: The same.
        grain: Rows, or pieces of long ones, in a task.
        threads: How many threads are of use.
    """

    result: Shape
    numbers: NDArray
    strides: NDArray
    grain: int
    threads: int


def lay_out(
    arrays: Sequence[NDArray],
    lines: int,
    constants: int,
    types: Sequence[int],
    rank: int,
    threads: int,
) -> ProgramLayout | None:
    """Return how a program runs over arrays; ``None`` if others had better be given.

    Args:
        arrays: They.
        lines: Instructions.
        constants: How many numbers there are.
        types: Those of ``MAX_INPUTS`` arrays' elements, and the result's.
        rank: Axes of the result at least.
        threads: How many to use at most.

    Raises:
        ValueError: The shapes do not broadcast.
    """
    plan = PLAN_PROGRAM.run
    if plan is None or not all(isinstance(x, np.ndarray) for x in arrays):
        return None
    shape = np.empty(max([rank, *[x.ndim for x in arrays]]), np.int64)
    numbers = np.array([0] * MAX_AXES + [constants, len(arrays), 0, *types, 0, 0], np.int64)
    strides = np.zeros((MAX_INPUTS, MAX_AXES), np.int64)
    addresses = (*map(id, arrays), *[0] * MAX_INPUTS)[:MAX_INPUTS]
    plan(*addresses, lines, threads, shape, numbers, strides)
    if (first := numbers.item(0)) < 0:
        if first == DIFFER:
            broadcast_shapes(*(x.shape for x in arrays))  # which says how
        return None
    grain, team = numbers[-2:].tolist()
    return ProgramLayout(tuple(shape.tolist()), frozen(numbers), frozen(strides), grain, team)


def contiguous_all(arrays: Sequence[NDArray]) -> list[NDArray]:
    """Return arrays, or copies, whose elements are adjacent."""
    return [contiguous(x) for x in arrays]


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
