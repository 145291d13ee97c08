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
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tenonnx.later import Later
from tenonnx.records import record
from tenonnx_cpu.buffers import COUNTED, apart
from tenonnx_cpu.capture.launch import Launch, done, is_fixed
from tenonnx_cpu.jit import layout as at
from tenonnx_cpu.jit.code import code_object
from tenonnx_cpu.jit.runtime import JitKernel, compiles
from tenonnx_cpu.jit.scratch import KEPT as SCRATCH_KEPT
from tenonnx_cpu.jit.scratch import ROOMS, scratch
from tenonnx_cpu.jit.threads import memory as pool_memory

if TYPE_CHECKING:
    from tenonnx_cpu.capture.captured_call import CapturedCall
    from tenonnx_cpu.capture.captured_run import CapturedRun
    from tenonnx_cpu.capture.kept_run import KeptRun
    from tenonnx_cpu.kernel_selection import Site

REPLAY = JitKernel("capture.replay", "replay")

KEPT = 8
"""Captured calls that a step keeps."""

PATIENCE = 64
"""Calls of shapes that are not captured after which a step is not captured any more."""


@record
class Capturable:
    """A step's function that returns a ``Launch``, or results where no kernel is to be called.

    Its decisions must depend on nothing but its inputs' dtypes, shapes and strides, on constants
    and on fixed arrays.

    Attributes:
        function: It.
        dynamic: Says the same for inputs that may be of other lengths in each run. Every number of
            its launches, and in whole numbers among the arguments, is a polynomial of a length, of
            the second degree at most, or never falls, or never rises. ``None`` if it does not
            promise that.
        each_length: Nothing is promised but that no kernel is launched: it is to be asked about
            each length.
    """

    function: Callable[..., Any]
    dynamic: Callable[..., Any] | None = None
    each_length: bool = False

    def __call__(self, *inputs: Any) -> Any:
        """Returns the results."""
        return done(self.function(*inputs), inputs)

    def traced(
        self, inputs: tuple[Any, ...], constants: Sequence[bool]
    ) -> tuple[Any, CapturedCall | None]:
        """Returns the results, and the call if it is the same for all such inputs.

        Args:
            inputs: The step's.
            constants: Which of them are the same arrays in every run.
        """
        made = self.function(*inputs)
        result = done(made, inputs)
        function = self.function
        if type(made) is not Launch and self.dynamic not in (None, function):
            function = self.dynamic
            made = function(*inputs)
        elif type(made) is Launch and result is not made.result:  # it was refused
            return result, None
        said = said_of(function, inputs, constants, made) if type(made) is Launch else None
        return result, said

    def replayed(self, constants: Sequence[bool]) -> Callable[..., Any]:
        """Returns what a step calls.

        Args:
            constants: Which of its inputs are the same arrays in every run.
        """
        return _Tracer(self, tuple(constants)).attached()


def said_of(
    function: Callable[..., Any], inputs: tuple[Any, ...], constants: Sequence[bool], made: Launch
) -> CapturedCall | None:
    """Returns a launch as a step's function says it of all such inputs, if it does.

    Args:
        function: The step's.
        inputs: What it was asked about.
        constants: Which of them are the same arrays in every run.
        made: What it said.
    """
    # Not imported before the first step that is captured: some sessions have none.
    from tenonnx_cpu.capture.captured_call import capture, repeats

    if (captured := capture(inputs, constants, made)) is None:
        return None
    # Results are made once more, and dropped: kept, they would be memory that no run needs.
    with contextlib.suppress(MemoryError), apart():
        if repeats(captured, function(*inputs)):
            return captured
    return None


def dynamic(function: Callable[..., Any]) -> Capturable:
    """Returns a step's call that promises as much of any lengths."""
    return Capturable(function, function)


def where_constant(
    site: Site, positions: Iterable[int], call: Callable[..., Any]
) -> Callable[..., Any]:
    """Returns a step's function that is captured if some inputs, which it reads, are constants."""
    if all(site.constant(place) is not None for place in positions if site.given(place)):
        return Capturable(call)
    return lambda *inputs: done(call(*inputs), inputs)


def replayed(call: Callable[..., Any], constants: Sequence[bool]) -> Callable[..., Any]:
    """Returns what a step calls: what captures itself, where that can be."""
    return call.replayed(constants) if isinstance(call, Capturable) else call


def attach(
    tracer: Callable[..., Any], plain: Callable[..., Any], wrapped: Callable[..., Any]
) -> Callable[..., Any]:
    """Returns what replays captures, and calls a tracer for what fits none.

    Args:
        tracer: Takes a ``Cell``, which it may extend, and inputs.
        plain: What to call where nothing is captured.
        wrapped: The call that gives it its name.
    """
    if not code_object.SUPPORTED:
        return plain
    REPLAY.request(works=False)
    if not COUNTED:
        return plain
    if REPLAY.run is None:
        from tenonnx_cpu.capture.waiting import Waiting  # before machine code is there

        return Waiting(tracer, plain, wrapped) if compiles() else plain
    cell = Cell((_services(), tracer))
    cell.__wrapped__ = wrapped
    return code_object.builtin("replay", code_object.entry_of(REPLAY.run), cell)


def replay_once(words: Any, things: Any, inputs: Any, otherwise: Callable[..., Any]) -> Any:
    """Replays a capture, or calls something else with the inputs if it does not fit them."""
    scratch(int(words[at.SCRATCH]))
    return _replay(Cell((_services(), lambda _cell, *given: otherwise(*given), words, things)))(
        *inputs
    )


def _replay(cell: Cell) -> Callable[..., Any]:
    assert REPLAY.run is not None, "there are captures"
    return code_object.builtin("replay", code_object.entry_of(REPLAY.run), cell)


def lacks_scratch(cell: Cell) -> bool:
    """Says whether this thread had less scratch memory than captures need; now it has as much."""
    wanted = cell.scratch
    if not wanted or wanted > SCRATCH_KEPT or scratch(0).size >= wanted:
        return False
    scratch(wanted)
    return True


def again(cell: Cell, inputs: tuple[Any, ...]) -> Any:
    """Replays a capture that fits, or calls what the cell says where none does."""
    return _replay(cell)(*inputs)


def captures_of(cell: Cell) -> int:
    """Returns how many captures there are."""
    return len(cell) // 2 - 1


def keep(cell: Cell, run: CapturedRun) -> int:
    """Has a captured run replayed from now on; returns how many there are."""
    if len(cell) >= 2 + 2 * KEPT:
        del cell[2:4]
    cell.extend(run.encode())
    cell.scratch = max(cell.scratch, run.scratch)
    return captures_of(cell)


class Cell(list[Any]):
    """The ``self`` of ``jit.replay``: addresses, a ``_Tracer``, and captures.

    Attributes:
        scratch: Bytes of scratch memory that all captures so far can do with.
    """

    __wrapped__: Callable[..., Any]
    scratch = 0

    def __kept__(self) -> tuple[Any, ...]:
        """Returns how a plan that is kept has what replays: without what was captured."""
        return attached, (Later(self[1]),)

    def __checked__(self) -> Callable[..., Any]:
        """Returns what calls its steps one after the other, and looks each time whether to stop."""
        return functools.partial(self[1].checked, self)

    def __captures__(self, names: Mapping[int, str]) -> list[KeptRun]:
        """Returns what was captured, for a plan that is kept.

        Args:
            names: Those of the plan's arrays, by their identities.

        Raises:
            Unkept: It means nothing to another process.
        """
        from tenonnx_cpu.capture.kept_run import kept  # after the first run of a model

        captures = zip(self[2::2], self[3::2], strict=True)
        return [kept(words, things, names) for words, things in captures]

    def __take__(self, captures: Iterable[KeptRun], namespace: Mapping[str, Any]) -> None:
        """Has what a plan was kept with replayed.

        Raises:
            Unkept: A kernel is not there.
        """
        restored = [each.restored(namespace) for each in captures]
        self.extend(itertools.chain.from_iterable(restored))
        self.scratch = max((int(words[at.SCRATCH]) for words, _ in restored), default=0)


def attached(tracer: Later) -> Callable[..., Any]:
    """Returns what replays a tracer's captures, of which there are none yet."""
    unopened = _Unopened(tracer)
    return attach(unopened, unopened.untraced, unopened.untraced)


class _Unopened:
    """A tracer of a plan that was kept, made when inputs come that no capture fits."""

    def __init__(self, tracer: Later) -> None:
        self._tracer = tracer

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles the tracer."""
        return self._tracer.open().__reduce__()  # type: ignore[no-any-return]  # it has one

    def untraced(self, *inputs: Any) -> Any:
        """Returns the results without a capture."""
        return self._tracer.open().untraced(*inputs)

    def checked(self, cell: Cell, *inputs: Any) -> Any:
        """Returns the results, as the tracer's method does."""
        return self._tracer.open(functools.partial(_resume, cell)).checked(cell, *inputs)

    def __call__(self, cell: Cell, *inputs: Any) -> Any:
        """Returns the results."""
        if lacks_scratch(cell):  # a thread that is new
            return again(cell, inputs)
        return self._tracer.open(functools.partial(_resume, cell))(cell, *inputs)


def _resume(cell: Cell, tracer: Any) -> None:
    """Tells a tracer what its cell has captures of already."""
    if len(cell) > 2:
        from tenonnx_cpu.capture.kept_run import key_of as kept_key

        tracer.resume([kept_key(*each) for each in zip(cell[2::2], cell[3::2], strict=True)])


def key_of(x: Any) -> Any:
    """Returns what tells captures of an input apart."""
    if x is None or is_fixed(x) or not hasattr(x, "strides"):
        return id(x)
    return x.shape, x.strides, x.dtype


class Recent:
    """The latest calls of a step: shapes that come again are worth a capture."""

    _keys: Sequence[Any] = ()

    def are_worth(self, key: Any, captures: int) -> bool:
        """Says whether a call's inputs are to be captured; the call is the latest from now on.

        The first ones are; others when they come again, while there is room for captures, and then
        when they come twice in a row: shapes that take turns would drive out each other's.

        Args:
            key: What tells captures of such inputs apart.
            captures: How many there are.
        """
        latest = self._keys
        self.add([key])
        return not latest or key in (latest if captures < KEPT else latest[-1:])

    def add(self, keys: Iterable[Any]) -> None:
        """Adds calls with such inputs."""
        self._keys = [*self._keys, *keys][-KEPT:]


class _Tracer:
    """The call for inputs that no capture of a step fits.

    It captures the first call, and shapes that come again.

    Args:
        step: The step's call.
        constants: Which of its inputs are the same arrays in every run.
    """

    def __init__(self, step: Capturable, constants: tuple[bool, ...]) -> None:
        self._step = step
        self._constants = constants
        self._patience = PATIENCE
        self._recent = Recent()

    def attached(self) -> Callable[..., Any]:
        """Returns what a step calls."""
        return attach(self, self._step, self._step.function)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles it as it was before the first call."""
        return _Tracer, (self._step, self._constants)

    def resume(self, keys: Sequence[Any]) -> None:
        """Goes on from captures of such inputs."""
        self._recent.add(keys)

    def untraced(self, *inputs: Any) -> Any:
        """Returns the results."""
        return self._step(*inputs)

    def checked(self, cell: Cell, *inputs: Any) -> Any:
        """Returns the results: there is no other step to look before."""
        return again(cell, inputs)

    def __call__(self, cell: Cell, *inputs: Any) -> Any:
        """Returns the results."""
        if lacks_scratch(cell):  # a thread that is new
            return again(cell, inputs)
        if self._patience <= 0 or compiles():  # a better kernel may be on its way
            return self._step(*inputs)
        self._patience -= 1
        key = [key_of(x) for x in inputs]
        if not self._recent.are_worth(key, captures_of(cell)):
            return self._step(*inputs)
        result, captured = self._step.traced(inputs, self._constants)
        if captured is not None:
            from tenonnx_cpu.capture.captured_run import alone  # not where nothing is captured

            keep(cell, alone(captured))
        return result


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
    stopped = ctypes.addressof(pool_memory.start()) + 8 * pool_memory.STOPS
    words[at.STOPPED] = stopped
    words[at.ROOMS], words[at.ROOMS_AT] = len(ROOMS), ROOMS.ctypes.data
    return words
