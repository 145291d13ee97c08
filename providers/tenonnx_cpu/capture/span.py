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
from typing import TYPE_CHECKING, Any

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
    replayed,
)
from tenonnx_cpu.capture.captured_run import CapturedRun
from tenonnx_cpu.capture.extents import form_of, without_constants
from tenonnx_cpu.capture.launch import is_fixed
from tenonnx_cpu.capture.recent import Recent
from tenonnx_cpu.jit import layout as at

if TYPE_CHECKING:
    from tenonnx_cpu.capture.dynamic_run import DynamicRun

# Steps of a span at most: the arena is assigned by comparing each store with all others.
MAX_SPAN_STEPS = 256

# Captures of growing lengths that a span keeps at most.
MAX_DYNAMIC_RUNS = 16


@cacheable
class Tracer:
    """The call for inputs that no capture of a span fits.

    Args:
        steps: In order; the call of each is ``Capturable``.
        inputs: Values that they read from others, without constants.
        outputs: Values that others read from them.
    """

    def __init__(
        self, steps: Sequence[Step], inputs: Sequence[ValueInfo], outputs: Sequence[ValueInfo]
    ) -> None:
        self._steps, self._inputs, self._outputs = steps, tuple(inputs), tuple(outputs)
        self._recent = Recent()
        self._shapes: list[Any] = []
        self._forms: tuple[Any, ...] = ()
        self._dynamic: tuple[DynamicRun, ...] = ()
        self._latest: tuple[Any, ...] = ()
        self._is_split = False

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle it as it was before the first call."""
        steps = [(s.call, s.inputs, s.outputs, s.nodes, s.multiple) for s in self._steps]
        return _again, (steps, self._inputs, self._outputs)

    def attached(self) -> Callable[..., Any]:
        """Return what a step calls."""
        return attach(self, self.untraced, self.untraced)

    def resume(self, keys: Sequence[Any]) -> None:
        """Go on from captures of such inputs."""
        self._recent.add(keys)

    @functools.cached_property
    def single_steps(self) -> tuple[Step, ...]:
        """The steps by themselves."""
        return tuple(map(alone, self._steps))

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
        if self._recent.are_worth(key):
            return self._returned(self._capture(cell, key, inputs))
        before, self._latest = self._latest, key
        if before and not any(map(operator.eq, before, key)):
            return self.untraced(*inputs)  # nothing is as it was
        shapes: list[Any] = []
        results = self._run_steps(functools.partial(self._note_shapes, shapes), inputs)
        self._compare(shapes, inputs)
        return self._returned(results)

    def untraced(self, *inputs: Any) -> Any:
        """Return the results."""
        return self._returned(self._untraced(*inputs))

    def _note_shapes(self, shapes: list[Any], n: int, arguments: tuple[Any, ...]) -> Any:
        """Return a step's results, and add the shapes of its inputs."""
        shapes.append([x if x is None or is_fixed(x) else x.shape for x in arguments])
        return self._steps[n].call(*arguments)

    @functools.cached_property
    def _numbers(self) -> tuple[list[tuple[list[int | None], list[int]]], list[int]]:
        """The places of each step's inputs and outputs, constants being nowhere.

        And where the span's outputs are. The span's inputs come first.
        """
        slots: dict[Any, int] = {value: n for n, value in enumerate(self._inputs)}
        numbers = []
        for step in self._steps:
            taken = [slots.get(value) for value in step.inputs]
            given = [slots.setdefault(value, len(slots)) for value in step.outputs]
            numbers.append((taken, given))
        return numbers, [slots[value] for value in self._outputs]

    @functools.cached_property
    def _constants(self) -> dict[ValueInfo | None, Any]:
        """The arrays of the constants that steps read."""
        read = {value for step in self._steps for value in step.inputs if value is not None}
        return {value: constant_on(value, HOST) for value in read if value.constant is not None}

    @functools.cached_property
    def _order(self) -> list[tuple[Any, ...]]:
        """The steps, slots and constants of inputs, outputs' slots, and slots nobody reads then."""
        numbers, results = self._numbers
        last = {slot: n for n, each in enumerate(numbers) for slots in each for slot in slots}
        order = []
        for n, (step, (taken, given)) in enumerate(zip(self._steps, numbers, strict=True)):
            known = map(self._constants.get, step.inputs)
            used = {*taken, *given}.difference(results)
            done = [slot for slot in used if slot is not None and last[slot] == n]
            order.append((step, list(zip(taken, known, strict=True)), given, done))
        return order

    def _run_steps(
        self, visit: Callable[[int, tuple[Any, ...]], Any], inputs: Sequence[Any]
    ) -> tuple[Any, ...]:
        """Return the results of one step after the other, which are dropped once they are read.

        Args:
            visit: Returns what a step makes of its inputs.
            inputs: The span's.
        """
        memory: dict[int | None, Any] = dict(enumerate(inputs))
        for n, (step, taken, given, done) in enumerate(self._order):
            arguments = [own if slot is None else memory[slot] for slot, own in taken]
            try:
                made = visit(n, tuple(arguments))
            except Exception as error:
                if "step" not in vars(error):
                    vars(error).update(step=step, arguments=arguments)
                raise
            if step.multiple:
                memory.update(zip(given, made, strict=False))
            else:
                memory[given[0]] = made
            del made
            for slot in done:
                del memory[slot]
        return tuple(memory[slot] for slot in self._numbers[1])

    def _returned(self, results: tuple[Any, ...]) -> Any:
        return results if len(results) > 1 else results[0]

    def _capture(self, cell: Cell, key: Any, inputs: Sequence[Any]) -> tuple[Any, ...]:
        """Return the results of the steps, which are captured."""
        inputs = self._without_constants(inputs)
        run, uncaptured = CapturedRun(inputs), set()
        numbers, results = self._numbers

        def visit(n: int, arguments: tuple[Any, ...]) -> Any:
            call = self._steps[n].call
            assert isinstance(call, Capturable), "others are in no span"
            made, is_captured = call.traced(run, arguments, *numbers[n])
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
            drop_idle()  # what steps exchanged is in the arena from now on
        else:
            self._split_in_half()
        return found

    def _without_constants(self, inputs: Sequence[Any]) -> tuple[Any, ...]:
        return without_constants(inputs, constants=self._constants.values())

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
        from tenonnx_cpu.capture.dynamic_length import Evaluator  # for what grows
        from tenonnx_cpu.capture.growth import Varies, growth_of

        growth = growth_of(before, self._forms)
        if any(run.takes(inputs) for run in self._dynamic):
            return differ
        calls: list[Any] = [step.call for step in self._steps]
        try:
            if growth is None:
                raise Varies
            own = self._without_constants(inputs)
            run = Evaluator(calls, self._run_steps, *self._numbers).run(growth, own)
        except Varies as varies:  # as where another cache begins
            return () if self._dynamic else varies.steps or differ
        self._dynamic = (run, *self._dynamic)[:MAX_DYNAMIC_RUNS]
        return ()

    def _split_off(self, others: Collection[int]) -> None:
        """Capture some steps no longer with those around them."""
        found: list[Step] = []
        later = set(self._outputs)
        each = [
            (single, [n for n, _ in some])
            for single, some in itertools.groupby(
                enumerate(self._steps), lambda numbered: numbered[0] in others
            )
        ]
        for single, numbers in reversed(each):
            steps = [self._steps[n] for n in numbers]
            some = [self.single_steps[n] for n in numbers] if single else captured(steps, later)
            found[:0] = some
            later.update(value for step in some for value in step.inputs if value is not None)
        self._use_steps(found)

    def _split_in_half(self) -> None:
        """Capture each half of the steps: all of them need more memory than there is for one."""
        half = len(self._steps) // 2
        last = captured(self._steps[half:], set(self._outputs))
        read = {value for step in last for value in step.inputs if value is not None}
        self._use_steps([*captured(self._steps[:half], read.union(self._outputs)), *last])

    def _use_steps(self, steps: Sequence[Step]) -> None:
        """Run other steps from now on, and capture the whole no more."""
        self.untraced_steps = steps
        vars(self).pop("_untraced", None)
        self._is_split = True


@cacheable
def _again(
    steps: Iterable[tuple[Any, ...]], inputs: Sequence[ValueInfo], outputs: Sequence[ValueInfo]
) -> Tracer:
    """Return the tracer of a plan that was kept."""
    return Tracer([Step(*each) for each in steps], inputs, outputs)


def _are_alike(old: Sequence[Any], new: Sequence[Any]) -> bool:
    """Return whether shapes, or arrays that never change, are the same."""
    return all(
        one is other or (type(one) is tuple is type(other) and one == other)
        for one, other in zip(old, new, strict=True)
    )


def constants_of(inputs: Iterable[ValueInfo | None]) -> list[bool]:
    """Return which inputs are the same arrays in every run."""
    return [value is not None and value.constant is not None for value in inputs]


def alone(step: Step) -> Step:
    """Return a step that is captured by itself, if it is ``Capturable``."""
    return step.called(replayed(step.call, constants_of(step.inputs)))


def captured(steps: Sequence[Step], escaping: Collection[ValueInfo]) -> list[Step]:
    """Return steps as fewer, of which those that can be captured together are one."""
    if any(hasattr(step.call, "in_place") for step in steps):
        from tenonnx_cpu.capture.kv_cache_span import joined  # for models with caches

        steps = joined(steps, escaping)
    return captured_without_caches(steps, escaping)


def captured_without_caches(steps: Iterable[Step], escaping: Iterable[ValueInfo]) -> list[Step]:
    """Return steps as fewer; those with caches are by themselves."""
    cut = spans.cut(steps, is_capturable, spans.Span, MAX_SPAN_STEPS)
    found = spans.as_one(cut, escaping, is_capturable, _as_one, _fits)
    return [step if step.parts else alone(step) for step in found]


def is_capturable(step: Step) -> bool:
    """Return whether a step may be captured with others."""
    return type(step.call) is Capturable


def _fits(span: spans.Span, outputs: tuple[ValueInfo, ...]) -> bool:
    """Return whether there is room for a span's inputs, for its outputs and for its arena."""
    return len(span.inputs) < at.MOST_ARGUMENTS and len(outputs) < at.MOST_OUTPUTS


def _as_one(span: spans.Span, outputs: tuple[ValueInfo, ...]) -> Step | None:
    inputs = tuple(value for value, _ in span.inputs)
    if not inputs:
        return None
    tracer = Tracer(span.steps, inputs, outputs)
    return Step(
        call=tracer.attached(),
        inputs=inputs,
        outputs=outputs,
        multiple=len(outputs) > 1,
    )
