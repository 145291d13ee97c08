"""Consecutive steps that are captured and replayed as one.

The first run of inputs goes step by step, and every step is traced. If all of them are captured,
the span is: from then on, machine code launches their kernels one after the other. Inputs that get
longer from run to run have captures of many lengths. A step that cannot be captured, or that has
other shapes in every run, parts the span.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from tenonnx.interruption import check
from tenonnx.planning import spans
from tenonnx.planning.lower import constant_on, is_constant
from tenonnx.planning.program import Program
from tenonnx.provider import HOST, Step
from tenonnx_cpu.buffers import drop_idle
from tenonnx_cpu.capture.capturable import (
    PATIENCE,
    Capturable,
    Cell,
    Recent,
    again,
    attach,
    captures_of,
    keep,
    key_of,
    lacks_scratch,
    replayed,
)
from tenonnx_cpu.capture.captured_call import CapturedCall, form_of
from tenonnx_cpu.capture.captured_run import CapturedRun, Numbered
from tenonnx_cpu.jit import layout as at
from tenonnx_cpu.jit.runtime import compiles

if TYPE_CHECKING:
    import onnx_ir as ir

    from tenonnx_cpu.capture.dynamic_run import DynamicRun

MOST = 256
"""Steps of a span at most: where each of what they make lies is found by looking at all others."""

MOST_DYNAMIC = 16
"""Captured runs of any of some lengths that a span keeps."""


class Trace:
    """A trace of a run of a span's steps.

    Args:
        captures: Whether the steps are captured.

    Attributes:
        keys: What tells captures of each step's inputs apart.
        calls: Each step's; ``None`` for one that cannot be captured.
    """

    def __init__(self, *, captures: bool) -> None:
        self.captures = captures
        self.keys: list[Any] = []
        self.calls: list[CapturedCall | None] = []


class Tracer:
    """The call for inputs that no capture of a span fits.

    Args:
        steps: In order; the call of each is ``Capturable``.
        inputs: Values that they read from others, without constants.
        outputs: Values that others read from them.
    """

    def __init__(
        self, steps: Sequence[Step], inputs: Sequence[ir.Value], outputs: Sequence[ir.Value]
    ) -> None:
        self._steps, self._inputs, self._outputs = steps, tuple(inputs), tuple(outputs)
        self._patience = PATIENCE
        self._kept: list[Any] = []
        self._recent = Recent()
        self._keys: list[Any] = []
        self._forms: tuple[Any, ...] = ()
        self._dynamic: tuple[DynamicRun, ...] = ()
        self._constants: dict[ir.Value, Any] = {}
        self._parted = False

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles it as it was before the first call; the steps without their nodes."""
        steps = [(s.call, s.inputs, s.outputs, s.multiple) for s in self._steps]
        return _again, (steps, self._inputs, self._outputs)

    def attached(self) -> Callable[..., Any]:
        """Returns what a step calls."""
        return attach(self, self.untraced, self.untraced)

    def resume(self, keys: Sequence[Any]) -> None:
        """Goes on from captures of such inputs."""
        self._kept = list(keys)
        self._recent.add(keys)

    @functools.cached_property
    def parts(self) -> tuple[Step, ...]:
        """The steps by themselves."""
        return tuple(map(alone, self._steps))

    @functools.cached_property
    def untraced_steps(self) -> Sequence[Step]:
        """The steps that run where nothing is traced; some of them are one."""
        return self.parts

    @functools.cached_property
    def _untraced(self) -> Program:
        inputs = [(value, HOST) for value in self._inputs]
        return Program(self.untraced_steps, inputs, self._outputs)

    def __call__(self, cell: Cell, *inputs: Any) -> Any:
        """Returns the results; captures the first run, and inputs of shapes that come again."""
        if lacks_scratch(cell):  # a thread that is new
            return again(cell, inputs)
        for run in self._dynamic:
            if run.takes(inputs):
                return run(inputs, functools.partial(self._call, cell))
        return self._call(cell, *inputs)

    def _call(self, cell: Cell, *inputs: Any) -> Any:
        if self._parted or self._patience <= 0 or compiles():
            return self.untraced(*inputs)
        key = [key_of(x) for x in inputs]
        if key in self._kept:  # its kernels refuse what is in the inputs
            return self.untraced(*inputs)
        trace = Trace(captures=self._recent.are_worth(key, captures_of(cell)))
        results = self._followed(functools.partial(self._trace, trace), inputs)
        if trace.captures:
            self._keep(cell, key, inputs, trace.calls)
        else:
            self._compare(trace.keys, inputs)
        self._patience -= 1
        return self._returned(results)

    def untraced(self, *inputs: Any) -> Any:
        """Returns the results."""
        return self._returned(self._untraced(*inputs))

    def checked(self, cell: Cell, *inputs: Any) -> Any:
        """Returns the results; the thread's limits are looked at after every step."""
        del cell
        return self._returned(self._followed(self._check, inputs))

    def _check(self, n: int, arguments: tuple[Any, ...]) -> Any:
        made = self.parts[n].call(*arguments)
        check()
        return made

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

    def _constant(self, value: ir.Value | None) -> Any:
        if value is None:
            return None
        if value not in self._constants:
            self._constants[value] = constant_on(value, HOST)
        return self._constants[value]

    def _followed(
        self, visit: Callable[[int, tuple[Any, ...]], Any], inputs: Sequence[Any]
    ) -> tuple[Any, ...]:
        """Returns the results of one step after the other, which are dropped once they are read.

        Args:
            visit: Returns what a step makes of its inputs.
            inputs: The span's.
        """
        numbers, results = self._numbers
        last = {slot: n for n, each in enumerate(numbers) for slots in each for slot in slots}
        memory = dict(enumerate(inputs))
        for n, (step, (taken, given)) in enumerate(zip(self._steps, numbers, strict=True)):
            each = zip(taken, step.inputs, strict=True)
            arguments = (self._constant(v) if slot is None else memory[slot] for slot, v in each)
            try:
                made = visit(n, tuple(arguments))
            except Exception as error:
                vars(error).setdefault("step", step)
                raise
            memory.update(zip(given, made if step.multiple else (made,), strict=False))
            del made
            for slot in {*taken, *given}.difference(results):
                if slot is not None and last[slot] == n:
                    del memory[slot]
        return tuple(memory[slot] for slot in results)

    def _trace(self, trace: Trace, n: int, arguments: tuple[Any, ...]) -> Any:
        trace.keys.append([key_of(x) for x in arguments])
        if not trace.captures:
            return self.parts[n].call(*arguments)
        step = self._steps[n]
        assert isinstance(step.call, Capturable), "others are in no span"
        made, call = step.call.traced(arguments, constants_of(step.inputs))
        trace.calls.append(call)
        return made

    def _returned(self, results: tuple[Any, ...]) -> Any:
        return results if len(results) > 1 else results[0]

    def _keep(
        self, cell: Cell, key: Any, inputs: Sequence[Any], calls: Sequence[CapturedCall | None]
    ) -> None:
        """Keeps what was captured, unless it has been before, by another thread for example."""
        if missing := {n for n, call in enumerate(calls) if call is None}:
            self._part(missing)
        elif key not in self._kept:
            run = self._captured(inputs, calls)
            if run.fits:
                self._kept = [*self._kept, key][-keep(cell, run) :]
                drop_idle()  # what steps exchanged is in the arena from now on

    def _captured(
        self,
        inputs: Sequence[Any],
        calls: Sequence[CapturedCall | None],
        longest: CapturedRun | None = None,
    ) -> CapturedRun:
        numbers, results = self._numbers
        numbered = []
        for (taken, given), call in zip(numbers, calls, strict=True):
            assert call is not None, "all are captured"
            numbered.append(Numbered(call, taken, given))
        forms = [form_of(x) for x in inputs]
        return CapturedRun(forms, numbered, results, several=len(results) > 1, longest=longest)

    def _compare(self, keys: list[Any], inputs: tuple[Any, ...]) -> None:
        """Looks which steps' inputs are others in every run, if they are the fewer ones.

        They are captured for any length if that is all that differs, or parted from the others.
        """
        before, self._keys = self._keys, keys
        forms, self._forms = self._forms, tuple(map(form_of, inputs))
        if before:
            pairs = enumerate(zip(before, keys, strict=True))
            differ = {n for n, (old, new) in pairs if old != new}
            few = 0 < 2 * len(differ) <= len(keys)
            if few and (others := self._grow(forms, inputs, differ)):
                self._part(others)

    def _grow(
        self, before: Sequence[Any], inputs: tuple[Any, ...], differ: Collection[int]
    ) -> Collection[int]:
        """Captures a run of any length; returns the steps that forbid it."""
        from tenonnx_cpu.capture.dynamic_length import Asked  # for what grows
        from tenonnx_cpu.capture.growth import Varies, growth_of

        growth = growth_of(before, self._forms)
        if any(run.takes(inputs) for run in self._dynamic):
            return differ
        if growth is None:  # as where another cache begins
            return () if self._dynamic else differ
        calls = [(step.call, constants_of(step.inputs)) for step in self._steps]
        try:
            run = Asked(calls, self._followed, self._captured).run(growth, inputs)
        except Varies as varies:
            return varies.steps or differ
        self._dynamic = (run, *self._dynamic)[:MOST_DYNAMIC]
        return ()

    def _part(self, others: Collection[int]) -> None:
        """Captures some steps no longer with those around them."""
        found: list[Step] = []
        later = set(self._outputs)
        each = [
            (apart, [n for n, _ in some])
            for apart, some in itertools.groupby(
                enumerate(self._steps), lambda numbered: numbered[0] in others
            )
        ]
        for apart, numbers in reversed(each):
            steps = [self._steps[n] for n in numbers]
            some = [self.parts[n] for n in numbers] if apart else captured(steps, later)
            found[:0] = some
            later.update(value for step in some for value in step.inputs if value is not None)
        self.untraced_steps = found
        vars(self).pop("_untraced", None)
        self._parted = True


def _again(
    steps: Iterable[tuple[Any, ...]], inputs: Sequence[ir.Value], outputs: Sequence[ir.Value]
) -> Tracer:
    """Returns the tracer of a plan that was kept."""
    made = [Step(call, taken, given, (), multiple) for call, taken, given, multiple in steps]
    return Tracer(made, inputs, outputs)


def constants_of(inputs: Iterable[ir.Value | None]) -> list[bool]:
    """Says which inputs are the same arrays in every run."""
    return [value is not None and is_constant(value) for value in inputs]


def alone(step: Step) -> Step:
    """Returns a step that is captured by itself, if it is ``Capturable``."""
    return step.called(replayed(step.call, constants_of(step.inputs)))


def captured(steps: Sequence[Step], escaping: Collection[ir.Value]) -> list[Step]:
    """Returns steps as fewer, of which those that can be captured together are one."""
    if any(hasattr(step.call, "in_place") for step in steps):
        from tenonnx_cpu.capture.cached_span import joined  # for models with caches

        steps = joined(steps, escaping)
    return captured_apart(steps, escaping)


def captured_apart(steps: Iterable[Step], escaping: Iterable[ir.Value]) -> list[Step]:
    """Returns steps as fewer; those with caches are by themselves."""
    cut = spans.cut(steps, is_capturable, spans.Span, MOST)
    found = spans.as_one(cut, escaping, is_capturable, _as_one)
    return [step if step.parts else alone(step) for step in found]


def is_capturable(step: Step) -> bool:
    """Says whether a step may be captured with others."""
    return type(step.call) is Capturable


def _as_one(span: spans.Span, outputs: tuple[ir.Value, ...]) -> Step | None:
    inputs = tuple(value for value, _ in span.inputs)
    if not 0 < len(inputs) < at.MOST_ARGUMENTS:
        return None
    tracer = Tracer(span.steps, inputs, outputs)
    return Step(
        call=tracer.attached(),
        inputs=inputs,
        outputs=outputs,
        nodes=tuple(node for step in span.steps for node in step.nodes),
        multiple=len(outputs) > 1,
        parts=tracer.parts,
    )
