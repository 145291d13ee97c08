"""Steps that are captured: what Python does for a call is done once for arrays of some shapes.

Most steps call one kernel, and all that they do before depends on shapes alone: whether the kernel
takes the arrays, which of several it is, what the result looks like, how work is shared out. A
function that is ``Capturable`` returns that as a ``Launch`` instead of calling the kernel, and
machine code (``jit.replay``) does it from the next run on.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tenonnx.by_name import cacheable
from tenonnx.process.later import Later
from tenonnx_cpu.buffers import COUNTED
from tenonnx_cpu.capture.launch import Launch, done, is_fixed, launched
from tenonnx_cpu.capture.recent import Recent, at_once
from tenonnx_cpu.jit import layout as at
from tenonnx_cpu.jit import library
from tenonnx_cpu.jit.library import builtin, entry_of
from tenonnx_cpu.jit.runtime import JitKernel
from tenonnx_cpu.jit.scratch import KEPT as SCRATCH_KEPT
from tenonnx_cpu.jit.scratch import ROOMS, scratch
from tenonnx_cpu.jit.threads import memory as pool_memory

if TYPE_CHECKING:
    from tenonnx.planning.step import Step
    from tenonnx_cpu.capture.captured_run import CapturedRun
    from tenonnx_cpu.capture.stored_run import StoredRun
    from tenonnx_cpu.kernel_selection import Site

REPLAY = JitKernel("capture.replay", "replay")

# Bytes, and number, of the captures of a span at most; the one that was replayed longest ago goes
# first. A launch takes some 600 bytes.
MAX_CAPTURE_BYTES, MAX_CAPTURES = 4 << 20, 64

_keeping = threading.RLock()  # a signal's handler may capture, too


@cacheable
@dataclass(frozen=True)
class Capturable:
    """A step's function that returns a ``Launch``, or results where no kernel is to be called.

    Its decisions must depend on nothing but its inputs' dtypes, shapes and strides, on constants
    and on fixed arrays. Arguments that are no views of inputs, results or scratch memory are arrays
    that ``buffers.frozen`` returned.

    Attributes:
        function: It.
        dynamic: Says the same for inputs that may be of other lengths in each run. Every number of
            its launches, and in whole numbers among the arguments, is a polynomial of a length, of
            the second degree at most, or never falls, or never rises. ``None`` if it does not
            promise that.
        each_length: It launches no kernel, promises nothing else, and is evaluated for each length.
    """

    function: Callable[..., Any]
    dynamic: Callable[..., Any] | None = None
    each_length: bool = False

    def __call__(self, *inputs: Any) -> Any:
        """Return the results."""
        return done(self.function(*inputs), inputs)

    def traced(
        self,
        run: CapturedRun,
        inputs: tuple[Any, ...],
        taken: Sequence[int],
        given: Sequence[int],
    ) -> tuple[Any, bool]:
        """Return the results, and whether what is launched is in a captured run from now on.

        Args:
            run: What it is added to.
            inputs: The step's.
            taken: Their slots; less than 0 for those that are the same arrays in every run.
            given: The slots of the results.
        """
        made = run.before.call(self.function, inputs)
        result = done(made, inputs)
        other = self.dynamic
        if type(made) is not Launch and other is not None and other is not self.function:
            made = run.before.call(other, inputs)
            result = done(made, inputs)
        if type(made) is Launch and result is not made.result:
            made = result  # it was refused
        return result, run.add(made, inputs, taken, given)

    def guarded(self, guard: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Capturable:
        """Return the same with functions that are called through a guard, while it is traced.

        Args:
            guard: Returns a function that checks its inputs and calls another.
        """
        functions = {x: guard(x) for x in vars(self).values() if callable(x)}
        return type(self)(**{k: functions.get(x, x) for k, x in vars(self).items()})

    def replayed(
        self, constants: Sequence[bool], wait: Callable[[], int] = at_once
    ) -> Callable[..., Any]:
        """Return what a step calls.

        Args:
            constants: Which of its inputs are the same arrays in every run.
            wait: Returns how many runs come before the one that captures it.
        """
        return _Tracer(self, tuple(constants), wait).attached()


def dynamic(function: Callable[..., Any]) -> Capturable:
    """Return a step's call that promises as much of any lengths."""
    return Capturable(function, function)


def where_constant(
    site: Site, positions: Iterable[int], call: Callable[..., Any]
) -> Callable[..., Any]:
    """Return a step's function, which is captured if the inputs that it reads are constants."""
    if all(site.constant(place) is not None for place in positions if site.given(place)):
        return Capturable(call)
    return functools.partial(launched, call)


def attach(
    tracer: Callable[..., Any], plain: Callable[..., Any], wrapped: Callable[..., Any]
) -> Callable[..., Any]:
    """Return a function that replays captures, and calls a tracer with inputs that fit none.

    Args:
        tracer: Takes a ``Cell``, which it may extend, and the inputs.
        plain: The function to return where nothing can be captured.
        wrapped: The call whose name it has in messages.
    """
    REPLAY.request()
    if not COUNTED or REPLAY.run is None:
        return plain
    cell = Cell((_services(), tracer))
    cell.__wrapped__ = wrapped
    return builtin("replay", entry_of(REPLAY.run), cell)


def replay_once(words: Any, things: Any, inputs: Any, otherwise: Callable[..., Any]) -> Any:
    """Replay a capture; call ``otherwise`` with the inputs if it does not fit them."""
    scratch(int(words[at.SCRATCH]))

    def tracer(_: Cell, *given: Any) -> Any:
        return otherwise(*given)

    return replay(Cell((_services(), tracer, words, things)), inputs)


def has_grown_scratch(cell: Cell) -> bool:
    """Give this thread as much scratch memory as captures need; return whether it had less."""
    wanted = cell.scratch
    if not wanted or wanted > SCRATCH_KEPT or scratch(0).size >= wanted:
        return False
    scratch(wanted)
    return True


def replay(cell: Cell, inputs: tuple[Any, ...]) -> Any:
    """Replay the capture that fits, or call the tracer."""
    assert REPLAY.run is not None, "there are captures"
    return builtin("replay", entry_of(REPLAY.run), cell)(*inputs)


def add_capture(cell: Cell, key: Any, run: CapturedRun) -> None:
    """Replay a captured run from now on, for inputs with a key."""
    words, things = run.encode()
    words[at.USED] = _services()[at.REPLAYS]
    with _keeping:
        if key in cell.keys:  # another thread was faster
            return
        cell.extend((words, things))
        cell.keys.append(key)
        cell.scratch = max(cell.scratch, run.scratch)
        sizes = [
            code.nbytes + objects.nbytes
            for code, objects in zip(cell[2::2], cell[3::2], strict=True)
        ]
        while len(cell.keys) > 1 and (
            len(cell.keys) > MAX_CAPTURES or sum(sizes) > MAX_CAPTURE_BYTES
        ):
            n = min(range(len(sizes)), key=lambda n: cell[2 + 2 * n][at.USED])
            del cell[2 + 2 * n : 4 + 2 * n], cell.keys[n], sizes[n]


class Cell(list[Any]):
    """The captures of a step or span: the ``self`` of ``jit.replay``.

    Its items are addresses, a tracer, and the words and objects of one capture after the other.

    Attributes:
        scratch: Bytes of scratch memory that the captures need.
        keys: The ``key_of`` the inputs of each capture.
    """

    __wrapped__: Callable[..., Any]
    scratch = 0

    def __init__(self, items: Iterable[Any] = ()) -> None:
        super().__init__(items)
        self.keys: list[Any] = []

    def reduce_in_plan(self) -> tuple[Any, ...]:
        """Return how a cached plan makes this list: without its captures."""
        return attached, (Later(self[1]),)

    @property
    def single_steps(self) -> tuple[Step, ...]:
        """The steps of a span, by themselves; none of a step that is one."""
        return getattr(self[1], "single_steps", ())

    @property
    def capture_cell(self) -> Cell:
        """The cell with the captures of a step or span: this one."""
        return self

    def capture_first_run(self) -> None:
        """Have the first run captured, however long it takes: other processes want it."""
        if not isinstance(self[1], _Unopened):
            self[1].recent.wait = at_once

    def captures_to_store(self, names: Mapping[int, str]) -> list[StoredRun]:
        """Return the captures, as they are stored beside a cached plan.

        Args:
            names: Those of the plan's arrays, by their identities.

        Raises:
            NotCacheable: It means nothing to another process.
        """
        from tenonnx_cpu.capture.stored_run import stored

        captures = zip(self[2::2], self[3::2], strict=True)
        return [stored(words, things, names) for words, things in captures]

    def add_stored_captures(
        self, captures: Iterable[StoredRun], namespace: Mapping[str, Any]
    ) -> None:
        """Replay the captures that were stored beside a cached plan.

        Raises:
            NotCacheable: A kernel is not there.
        """
        restored = [each.restored(namespace) for each in captures]
        self.extend(itertools.chain.from_iterable(restored))
        self.scratch = max((int(words[at.SCRATCH]) for words, _ in restored), default=0)


@cacheable
def attached(tracer: Later) -> Callable[..., Any]:
    """Return a function that replays a tracer's captures, of which there are none yet."""
    unopened = _Unopened(tracer)
    return attach(unopened, unopened.untraced, unopened.untraced)


class _Unopened:
    """The tracer of a cached plan, made at the first inputs that no capture fits."""

    def __init__(self, tracer: Later) -> None:
        self._tracer = tracer

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the tracer."""
        return self._tracer.open().__reduce__()  # type: ignore[no-any-return]  # it has one

    def untraced(self, *inputs: Any) -> Any:
        """Return the results without a capture."""
        return self._tracer.open().untraced(*inputs)

    @property
    def single_steps(self) -> tuple[Step, ...]:
        """The tracer's."""
        return getattr(self._tracer.open(), "single_steps", ())

    def __call__(self, cell: Cell, *inputs: Any) -> Any:
        """Return the results."""
        if has_grown_scratch(cell):  # a thread that is new
            return replay(cell, inputs)
        return self._tracer.open(functools.partial(_resume, cell))(cell, *inputs)


def _resume(cell: Cell, tracer: Any) -> None:
    """Tell a tracer which inputs its cell has captures of."""
    if len(cell) > 2:
        from tenonnx_cpu.capture.stored_run import key_of as kept_key

        cell.keys[:] = [kept_key(*each) for each in zip(cell[2::2], cell[3::2], strict=True)]
        tracer.recent.add(cell.keys)


def key_of(x: Any) -> Any:
    """Return the part of an input that decides which capture fits: dtype, shape and strides."""
    if x is None or is_fixed(x) or not hasattr(x, "strides"):
        return id(x)
    return x.shape, x.strides, x.dtype, x.dtype.num  # two numbers where C's long is long long


@cacheable
class _Tracer:
    """The call for inputs that no capture of a step fits.

    It captures the first inputs, and those of shapes that come again.

    Args:
        step: The step's call.
        constants: Which of its inputs are the same arrays in every run.
        wait: Returns how many runs come before the one that captures it.
    """

    def __init__(
        self, step: Capturable, constants: tuple[bool, ...], wait: Callable[[], int] = at_once
    ) -> None:
        self._step = step
        self._constants = constants
        self.recent = Recent(wait)

    def attached(self) -> Callable[..., Any]:
        """Return what a step calls."""
        return attach(self, self._step, self._step.function)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle it as it was before the first call."""
        return _Tracer, (self._step, self._constants)

    def untraced(self, *inputs: Any) -> Any:
        """Return the results."""
        return self._step(*inputs)

    def __call__(self, cell: Cell, *inputs: Any) -> Any:
        """Return the results."""
        if has_grown_scratch(cell):  # a thread that is new
            return replay(cell, inputs)
        key = tuple(map(key_of, inputs))
        # What has a capture already is here because the kernel refuses what is in the inputs.
        if key in cell.keys or not self.recent.are_worth(key):
            return self._step(*inputs)
        # Not where nothing is captured:
        from tenonnx_cpu.capture.captured_run import CONSTANT, CapturedRun
        from tenonnx_cpu.capture.extents import without_constants

        inputs = without_constants(inputs, self._constants)
        run = CapturedRun(inputs, self._constants)
        taken = [CONSTANT if same else n for n, same in enumerate(self._constants)]
        given = range(len(inputs), len(inputs) + at.MOST_OUTPUTS)
        result, is_captured = self._step.traced(run, inputs, taken, given)
        if is_captured and run.clear:
            several = isinstance(result, tuple)
            run.finish(given[: len(result) if several else 1], several=several)
            if run.fits:
                add_capture(cell, key, run)
                self.recent.add([key])
        return result


@functools.cache
def _services() -> np.ndarray[Any, Any]:
    """Return the addresses that ``jit.layout`` names."""
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
    words = np.zeros(at.REPLAYS + 1, np.int64)
    for place, function in names.items():
        words[place] = ctypes.cast(function, ctypes.c_void_p).value or 0
    pointer_in = python.PyCapsule_GetPointer
    pointer_in.restype = ctypes.c_void_p
    pointer_in.argtypes = [ctypes.py_object, ctypes.c_char_p]
    table = pointer_in(np._core._multiarray_umath._ARRAY_API, None)  # type: ignore[attr-defined]
    for place, number in ((at.EMPTY, 184), (at.NEW_VIEW, 94), (at.SET_BASE, 282)):
        words[place] = ctypes.c_size_t.from_address(table + 8 * number).value
    words[at.NDARRAY] = id(np.ndarray)
    opened = library.current()
    assert opened is not None, "there are captures"
    words[at.STOPPED] = ctypes.addressof(opened.pool) + 8 * pool_memory.STOPS
    words[at.ROOMS], words[at.ROOMS_AT] = len(ROOMS), ROOMS.ctypes.data
    return words
