"""Consecutive steps that are captured and replayed as one.

The first run of inputs goes step by step, and every step is traced. If all of them are captured,
the span is: from then on, machine code launches their kernels one after the other. Inputs that get
longer from run to run have captures of many lengths. A step that cannot be captured, or that has
other shapes in every run, parts the span.
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from tenonnx.by_name import cacheable
from tenonnx.graph.values import ValueInfo
from tenonnx.planning import spans
from tenonnx.planning.compound import Compound
from tenonnx.planning.program import constant_on
from tenonnx.provider import HOST, Step
from tenonnx_cpu.buffers import drop_idle
from tenonnx_cpu.capture.capturable import (
    Capturable,
    Cell,
    add_capture,
    attach,
    has_grown_scratch,
    key_of,
    replay,
)
from tenonnx_cpu.capture.captured_run import CapturedRun
from tenonnx_cpu.capture.extents import form_of, without_constants
from tenonnx_cpu.capture.launch import is_fixed
from tenonnx_cpu.capture.recent import Recent, Turns, at_once
from tenonnx_cpu.jit import layout as at

if TYPE_CHECKING:
    from tenonnx_cpu.capture.dynamic_length import Evaluation
    from tenonnx_cpu.capture.dynamic_run import DynamicRun

# Steps of a span at most: the arena is assigned by comparing each store with all others.
MAX_SPAN_STEPS = 256

# Captures of growing lengths that a span keeps at most.
MAX_DYNAMIC_RUNS = 16


# Shapes up to which memory that steps exchanged is given back once they are captured. With more
# the next ones are most likely new, and take it again: 9 % of a voice model's time.
FEW_SHAPES = 4


class Slots(NamedTuple):
    """The places of a span's values in the memory of a run: inputs, results, constants.

    There are few objects that the garbage collector counts: with some thousands in a first run, it
    would search all that loading made.

    Attributes:
        taken, given: Those of each step's inputs and outputs. Constants count from the end.
        done: Those that nobody reads after each step.
        results: Those of the span's outputs.
        constants: The arrays of the last places; ``None`` in that of absent inputs.
        size: How many there are for inputs and results.
    """

    taken: Sequence[tuple[int, ...]]
    given: Sequence[range]
    done: Sequence[tuple[int, ...]]
    results: Sequence[int]
    constants: Sequence[Any]
    size: int


# The place of an input that is absent.
ABSENT_SLOT = -1


@cacheable
class Tracer:
    """The call for inputs that no capture of a span fits.

    Args:
        steps: In order; the call of each is ``Capturable``.
        inputs: Values that they read from others, without constants.
        outputs: Values that others read from them.
        wait: Returns how many runs come before the one that captures them.
    """

    def __init__(
        self,
        steps: Sequence[Step],
        inputs: Sequence[ValueInfo],
        outputs: Sequence[ValueInfo],
        wait: Callable[[], int] = at_once,
    ) -> None:
        self._steps, self._inputs, self._outputs = steps, tuple(inputs), tuple(outputs)
        self.recent = Recent(wait)
        self._shapes: list[Any] = []
        self._forms: tuple[Any, ...] = ()
        self._dynamic: tuple[DynamicRun, ...] = ()
        self._evaluation: Evaluation | None = None
        self._latest: tuple[Any, ...] = ()
        self._is_split = False

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle it as it was before the first call."""
        return type(self), (self._steps, self._inputs, self._outputs)

    def attached(self) -> Callable[..., Any]:
        """Return what a step calls."""
        return attach(self, self.untraced, self.untraced)

    @functools.cached_property
    def single_steps(self) -> tuple[Step, ...]:
        """The steps by themselves."""
        return tuple(alone(step, Turns()) for step in self._steps)

    @functools.cached_property
    def untraced_steps(self) -> Sequence[Step]:
        """The steps that run where nothing is captured; some of them are one."""
        return self._steps

    @functools.cached_property
    def _untraced(self) -> Compound:
        inputs = [(value, HOST) for value in self._inputs]
        return Compound(self.untraced_steps, inputs, self._outputs)

    def __call__(self, cell: Cell, *inputs: Any) -> Any:
        """Return the results; capture the first run, and inputs of shapes that come again."""
        if has_grown_scratch(cell):  # a thread that is new
            return replay(cell, inputs)
        for run in self._dynamic:
            if run.takes(inputs):
                self._shapes = []  # what comes next has not grown from the last that was compared
                return run(inputs, functools.partial(self._call, cell))
        return self._call(cell, *inputs)

    def _call(self, cell: Cell, *inputs: Any) -> Any:
        if self._is_split:
            return self.untraced(*inputs)
        key = tuple(map(key_of, inputs))
        if key in cell.keys:  # its kernels refuse what is in the inputs
            return self.untraced(*inputs)
        if self.recent.are_worth(key):
            return self._returned(self._capture(cell, key, inputs))
        before, self._latest = self._latest, key
        if before in ((), key) and self.recent.wait():
            return self._returned(self._run_steps(self._call_step, inputs))
        if before and not any(map(operator.eq, before, key)):
            return self.untraced(*inputs)  # nothing is as it was
        shapes: list[Any] = []
        results = self._run_steps(functools.partial(self._note_shapes, shapes), inputs)
        self._compare(shapes, inputs)
        return self._returned(results)

    def untraced(self, *inputs: Any) -> Any:
        """Return the results."""
        return self._returned(self._untraced(*inputs))

    def _call_step(self, n: int, arguments: tuple[Any, ...]) -> Any:
        return self._steps[n].call(*arguments)

    def _note_shapes(self, shapes: list[Any], n: int, arguments: tuple[Any, ...]) -> Any:
        """Return a step's results, and add the shapes of its inputs."""
        shapes.append([x if x is None or is_fixed(x) else x.shape for x in arguments])
        return self._steps[n].call(*arguments)

    @functools.cached_property
    def _slots(self) -> Slots:
        """The places of values in a run's memory."""
        slots = {value.id: n for n, value in enumerate(self._inputs)}
        constants: list[Any] = [None]
        size = len(slots)
        taken, given = list[tuple[int, ...]](), list[range]()
        for step in self._steps:
            own = []
            for value in step.inputs:
                if value is None:
                    own.append(ABSENT_SLOT)
                    continue
                if value.id not in slots:
                    constants.append(constant_on(value, HOST))
                    slots[value.id] = -len(constants)
                own.append(slots[value.id])
            taken.append(tuple(own))
            given.append(range(size, size + len(step.outputs)))
            for value in step.outputs:
                slots[value.id] = size
                size += 1
        results = [slots[value.id] for value in self._outputs]
        later, done = set(results), list[tuple[int, ...]]()
        for read, made in zip(reversed(taken), reversed(given), strict=True):
            found = [slot for slot in {*read, *made} if slot >= 0 and slot not in later]
            later.update(found)
            done.append(tuple(found))
        return Slots(taken, given, done[::-1], results, constants[::-1], size)

    def _run_steps(
        self, visit: Callable[[int, tuple[Any, ...]], Any], inputs: Sequence[Any]
    ) -> tuple[Any, ...]:
        """Return the results of one step after the other, which are dropped once they are read.

        Args:
            visit: Returns what a step makes of its inputs.
            inputs: The span's.
        """
        taken, given, done, results, constants, size = self._slots
        memory = [*inputs, *[None] * (size - len(inputs)), *constants]
        for n, step in enumerate(self._steps):
            arguments = tuple([memory[slot] for slot in taken[n]])
            try:
                made = visit(n, arguments)
            except Exception as error:
                if "step" not in vars(error):
                    vars(error).update(step=step, arguments=arguments)
                raise
            if step.multiple:
                for slot, each in zip(given[n], made, strict=False):
                    memory[slot] = each
            else:
                memory[given[n][0]] = made
            del made, arguments
            for slot in done[n]:
                memory[slot] = None
        return tuple([memory[slot] for slot in results])

    def _returned(self, results: tuple[Any, ...]) -> Any:
        return results if len(results) > 1 else results[0]

    def _capture(self, cell: Cell, key: Any, inputs: Sequence[Any]) -> tuple[Any, ...]:
        """Return the results of the steps, which are captured."""
        inputs = self._without_constants(inputs)
        run, uncaptured = CapturedRun(inputs), set()
        taken, given, results = self._slots.taken, self._slots.given, self._slots.results

        def visit(n: int, arguments: tuple[Any, ...]) -> Any:
            call = self._steps[n].call
            assert isinstance(call, Capturable), "others are in no span"
            made, is_captured = call.traced(run, arguments, taken[n], given[n])
            if not is_captured:
                uncaptured.add(n)
            return made

        found = self._run_steps(visit, inputs)
        if uncaptured:
            self._split_off(uncaptured)
        if not run.clear:
            return found
        run.finish(results, several=len(results) > 1)
        if run.fits:
            add_capture(cell, key, run)
            self.recent.add([key])
            if len(cell.keys) <= FEW_SHAPES:
                drop_idle()  # what steps exchanged is in the arena from now on
        else:
            self._split_in_half()
        return found

    def _without_constants(self, inputs: Sequence[Any]) -> tuple[Any, ...]:
        return without_constants(inputs, constants=self._slots.constants)

    def _compare(self, shapes: list[Any], inputs: tuple[Any, ...]) -> None:
        """Look which steps' inputs are others in every run, if they are the fewer ones.

        They are captured for any length if that is all that differs, or parted from the others.
        """
        before, self._shapes = self._shapes, shapes
        forms, self._forms = self._forms, tuple(map(form_of, inputs))
        if before:
            pairs = enumerate(zip(before, shapes, strict=True))
            differ = {n for n, (old, new) in pairs if not _are_alike(old, new)}
            few = 0 < 2 * len(differ) <= len(shapes)
            if few and (others := self._capture_growing(forms, inputs, differ)):
                self._split_off(others)

    def _capture_growing(
        self, before: Sequence[Any], inputs: tuple[Any, ...], differ: Collection[int]
    ) -> Collection[int]:
        """Capture a run of any length; return the steps that forbid it."""
        from tenonnx_cpu.capture.dynamic_length import Evaluator
        from tenonnx_cpu.capture.growth import Varies, growth_of

        growth = growth_of(before, self._forms)
        if any(run.takes(inputs) for run in self._dynamic):
            return differ
        calls: list[Any] = [step.call for step in self._steps]
        try:
            if growth is None:
                raise Varies
            own = self._without_constants(inputs)
            evaluator = Evaluator(calls, self._run_steps, self._slots, self._evaluation)
            run = evaluator.run(growth, own)
            self._evaluation = evaluator.latest
        except Varies as varies:  # as where another cache begins
            return () if self._dynamic else varies.steps or differ
        self._dynamic = (run, *self._dynamic)[:MAX_DYNAMIC_RUNS]
        return ()

    def _split_off(self, others: Collection[int]) -> None:
        """Capture some steps no longer with those around them."""
        parts = itertools.groupby(range(len(self._steps)), others.__contains__)
        self._use_steps([(list(numbers), single) for single, numbers in parts])

    def _split_in_half(self) -> None:
        """Capture each half of the steps: all of them need more memory than there is for one."""
        count, half = len(self._steps), len(self._steps) // 2
        self._use_steps([(range(half), False), (range(half, count), False)])

    def _use_steps(self, parts: Sequence[tuple[Sequence[int], bool]]) -> None:
        """Capture parts of the steps from now on, and the whole no more.

        Args:
            parts: The numbers of steps, and whether each of them is captured by itself.
        """
        found, later, turns = list[Step](), set(self._outputs), Turns()
        for numbers, single in reversed(parts):
            steps = [self._steps[n] for n in numbers]
            own = [alone(x, turns) for x in steps] if single else captured(steps, later, turns)
            found[:0] = own
            later.update(value for step in own for value in step.inputs if value is not None)
        self.untraced_steps = found
        vars(self).pop("_untraced", None)
        self._is_split = True


def _are_alike(old: Sequence[Any], new: Sequence[Any]) -> bool:
    """Return whether shapes, or arrays that never change, are the same."""
    return all(
        one is other or (type(one) is tuple is type(other) and one == other)
        for one, other in zip(old, new, strict=True)
    )


def alone(step: Step, turns: Turns) -> Step:
    """Return a step that is captured by itself, if it is ``Capturable``."""
    if not isinstance(step.call, Capturable):
        return step
    constants = [value is not None and value.constant is not None for value in step.inputs]
    return step.called(step.call.replayed(constants, turns.take(1)))


def captured(steps: Sequence[Step], escaping: Collection[ValueInfo], turns: Turns) -> list[Step]:
    """Return steps as fewer, of which those that can be captured together are one."""
    if any(hasattr(step.call, "in_place") for step in steps):
        from tenonnx_cpu.capture.kv_cache_span import joined

        steps = joined(steps, escaping, turns)
    return captured_without_caches(steps, escaping, turns)


def captured_without_caches(
    steps: Iterable[Step], escaping: Iterable[ValueInfo], turns: Turns
) -> list[Step]:
    """Return steps as fewer; those with caches are by themselves."""
    cut = spans.cut(steps, is_capturable, spans.Span, MAX_SPAN_STEPS)
    one = functools.partial(_as_one, turns)
    found = spans.as_one(cut, escaping, is_capturable, one, _fits)
    return [step if step.parts else alone(step, turns) for step in found]


def is_capturable(step: Step) -> bool:
    """Return whether a step may be captured with others."""
    return type(step.call) is Capturable


def _fits(span: spans.Span, outputs: tuple[ValueInfo, ...]) -> bool:
    """Return whether there is room for a span's inputs, for its outputs and for its arena."""
    return len(span.inputs) < at.MOST_ARGUMENTS and len(outputs) < at.MOST_OUTPUTS


def _as_one(turns: Turns, span: spans.Span, outputs: tuple[ValueInfo, ...]) -> Step | None:
    inputs = tuple(value for value, _ in span.inputs)
    if not inputs:
        return None
    tracer = Tracer(span.steps, inputs, outputs, turns.take(len(span.steps)))
    return Step(
        call=tracer.attached(),
        inputs=inputs,
        outputs=outputs,
        multiple=len(outputs) > 1,
    )
