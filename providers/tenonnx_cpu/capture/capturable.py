"""Steps that are captured: what Python does for a call is done once for arrays of some shapes.

Most steps call one kernel, and all that they do before depends on shapes alone: whether the kernel
takes the arrays, which of several it is, what the result looks like, how work is shared out. A
function that is ``Capturable`` returns that as a ``Launch`` instead of calling the kernel. Asked
twice, it must say the same; then machine code (``jit.replay``) does it from the next run on.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tenonnx.planning.lower import is_constant
from tenonnx.records import record
from tenonnx_cpu.buffers import COUNTED, apart
from tenonnx_cpu.capture.constants import is_fixed
from tenonnx_cpu.capture.launch import Launch, done
from tenonnx_cpu.jit import layout as at
from tenonnx_cpu.jit.code import images
from tenonnx_cpu.jit.runtime import JitKernel, compiles
from tenonnx_cpu.jit.scratch import ROOMS

if TYPE_CHECKING:
    import onnx_ir as ir

REPLAY = JitKernel("replay", "replay")

KEPT = 4
"""Captured calls that a step keeps."""

PATIENCE = 64
"""Calls with other shapes than the call before after which a step is not captured any more."""


@record
class Capturable:
    """A step's function that returns a ``Launch``, or results where no kernel is to be called.

    What it decides must depend on nothing but its inputs' dtypes, shapes and strides, on constants
    and on arrays that are fixed.

    Attributes:
        function: It.
    """

    function: Callable[..., Any]

    def __call__(self, *inputs: Any) -> Any:
        """Returns the results."""
        return done(self.function(*inputs), inputs)

    def replayed(self, constants: Sequence[bool]) -> Callable[..., Any]:
        """Returns what a step calls.

        Args:
            constants: Which of its inputs are the same arrays in every run.
        """
        if not images.SUPPORTED:
            return self
        REPLAY.request(works=False)
        if not COUNTED:
            return self
        if REPLAY.run is None:
            return Waiting(self, constants) if compiles() else self
        cell = Cell((_services(), _Tracer(self.function, tuple(constants))))
        cell.__wrapped__ = self.function
        return images.builtin("replay", images.entry_of(REPLAY.run), cell)


def replayed(call: Callable[..., Any], inputs: Sequence[ir.Value | None]) -> Callable[..., Any]:
    """Returns what a step of these inputs calls: what captures itself, where that can be."""
    if not isinstance(call, Capturable):
        return call
    return call.replayed([value is not None and is_constant(value) for value in inputs])


class Waiting:
    """Calls a captured step's function until machine code is there that can do it again."""

    __slots__ = ("__wrapped__", "_call", "_constants", "_step")

    def __init__(self, step: Capturable, constants: Sequence[bool]) -> None:
        self.__wrapped__ = step.function
        self._step = step
        self._constants = constants
        self._call: Callable[..., Any] = self._look

    def __call__(self, *inputs: Any) -> Any:
        """Returns the results."""
        return self._call(*inputs)

    def _look(self, *inputs: Any) -> Any:
        if REPLAY.run is None:
            return self._step(*inputs)
        self._call = self._step.replayed(self._constants)
        return self._call(*inputs)


class Cell(list[Any]):
    """What ``jit.replay`` has as its self: addresses, a ``_Tracer``, and captures."""

    __wrapped__: Callable[..., Any]


class _Tracer:
    """Does what no capture does, and captures the first call, and shapes that come again.

    Args:
        function: Returns a launch.
        constants: Which of its inputs are the same arrays in every run.
    """

    def __init__(self, function: Callable[..., Any], constants: tuple[bool, ...]) -> None:
        self._function = function
        self._constants = constants
        self._patience = PATIENCE
        self._shapes: Any = None

    def __call__(self, cell: Cell, *inputs: Any) -> Any:
        """Returns the results."""
        made = self._function(*inputs)
        result = done(made, inputs)
        if self._patience > 0 and type(made) is Launch and result is made.result:
            self._learn(cell, inputs, made)
        return result

    def _learn(self, cell: Cell, inputs: tuple[Any, ...], made: Launch) -> None:
        if compiles():
            return  # a better kernel than this one may be on its way
        shapes = [
            id(x) if x is None or is_fixed(x) else (x.shape, x.strides, x.dtype) for x in inputs
        ]
        self._patience -= 1
        if self._shapes not in (None, shapes):
            self._shapes = shapes
            return
        self._shapes = shapes
        # Not imported before the first step that is captured: some sessions have none.
        from tenonnx_cpu.capture.captured_call import capture, encode, repeats

        captured = capture(inputs, self._constants, made)
        if captured is None or self._patience <= 0:
            self._patience = 0
            return
        # Results are made once more, and dropped: kept, they would be memory that no run needs.
        with contextlib.suppress(MemoryError), apart():
            if repeats(captured, self._function(*inputs)):
                if len(cell) >= 2 + 2 * KEPT:
                    del cell[2:4]
                cell.extend(encode(captured))


@functools.cache
def _services() -> np.ndarray[Any, Any]:
    """Returns the addresses that ``jit.layout`` names."""
    python = ctypes.pythonapi
    names = {
        at.INCREF: python.Py_IncRef,
        at.DECREF: python.Py_DecRef,
        at.VECTORCALL: python.PyObject_Vectorcall,
        at.CALL_NOTHING: python.PyObject_CallNoArgs,
        at.TUPLE: python.PyTuple_New,
        at.TUPLE_SET: python.PyTuple_SetItem,
        at.THREAD: python.PyThread_get_thread_ident,
    }
    words = np.zeros(at.ROOMS_AT + 1, np.int64)
    for place, function in names.items():
        words[place] = ctypes.cast(function, ctypes.c_void_p).value or 0
    pointer_in = python.PyCapsule_GetPointer
    pointer_in.restype = ctypes.c_void_p
    pointer_in.argtypes = [ctypes.py_object, ctypes.c_char_p]
    table = pointer_in(np._core._multiarray_umath._ARRAY_API, None)  # type: ignore[attr-defined]
    for place, number in ((at.EMPTY, 184), (at.NEW_VIEW, 94), (at.SET_BASE, 282)):
        words[place] = ctypes.c_size_t.from_address(table + 8 * number).value
    words[at.NDARRAY] = id(np.ndarray)
    words[at.ROOMS], words[at.ROOMS_AT] = len(ROOMS), ROOMS.ctypes.data
    return words
