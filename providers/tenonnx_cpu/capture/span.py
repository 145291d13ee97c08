"""Consecutive steps that are captured and replayed as one.

The first run of inputs goes step by step, and every step is traced. If all of them are captured,
the span is: from then on, machine code launches their kernels one after the other. A step that
cannot be captured, or that has other shapes in every run, parts the span.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from tenonnx.planning import spans
from tenonnx.planning.lower import is_constant
from tenonnx.planning.program import Program
from tenonnx.provider import HOST, Step
from tenonnx_cpu.buffers import drop_idle
from tenonnx_cpu.capture.capturable import (
    PATIENCE,
    Capturable,
    Cell,
    attach,
    keep,
    key_of,
    replayed,
)
from tenonnx_cpu.capture.captured_call import CapturedCall, form_of
from tenonnx_cpu.capture.captured_run import CapturedRun, Numbered
from tenonnx_cpu.jit import layout as at
from tenonnx_cpu.jit.runtime import compiles

if TYPE_CHECKING:
    import onnx_ir as ir

MOST = 256
"""Steps of a span at most: where each of what they make lies is found by looking at all others."""

_thread = threading.local()


class Trace:
    """What a run of a span's steps shows.

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


class _Probe:
    """A step's call that is traced.

    Args:
        step: The step, whose call is ``Capturable``.
        call: What it calls where it is not captured with others.
    """

    def __init__(self, step: Step, call: Callable[..., Any]) -> None:
        assert isinstance(step.call, Capturable), "others are in no span"
        self._call, self._capturable = call, step.call
        self._constants = constants_of(step.inputs)

    def __call__(self, *inputs: Any) -> Any:
        """Returns the results."""
        trace: Trace = _thread.trace
        trace.keys.append([key_of(x) for x in inputs])
        if not trace.captures:
            return self._call(*inputs)
        result, captured = self._capturable.traced(inputs, self._constants)
        trace.calls.append(captured)
        return result


class Tracer:
    """What is called for inputs that no capture of a span fits.

    Args:
        steps: In order; the call of each is ``Capturable``.
        inputs: What they read of others, but constants.
        outputs: What others read of them.

    Attributes:
        parts: The steps by themselves.
        untraced_steps: What is run where nothing is traced; some of the steps together.
    """

    def __init__(
        self, steps: Sequence[Step], inputs: Sequence[ir.Value], outputs: Sequence[ir.Value]
    ) -> None:
        self._steps, self._inputs, self._outputs = steps, tuple(inputs), tuple(outputs)
        self._patience = PATIENCE
        self._kept: list[Any] = []
        self._last: Any = None
        self._keys: list[Any] = []
        self.parts = tuple(map(alone, steps))
        self.untraced_steps: Sequence[Step] = self.parts
        self._untraced = self._program(self.parts)
        calls = [_Probe(step, part.call) for step, part in zip(steps, self.parts, strict=True)]
        probes = [part.called(call) for part, call in zip(self.parts, calls, strict=True)]
        self._traced: Program | None = self._program(probes)

    def _program(self, steps: Sequence[Step]) -> Program:
        return Program(steps, [(value, HOST) for value in self._inputs], self._outputs)

    def __call__(self, cell: Cell, *inputs: Any) -> Any:
        """Returns the results; captures the first run, and inputs of shapes that come again."""
        if (program := self._traced) is None or compiles():
            return self.untraced(*inputs)
        key = [key_of(x) for x in inputs]
        trace = Trace(captures=self._last in (None, key))
        self._last = key
        outer, _thread.trace = getattr(_thread, "trace", None), trace
        try:
            results = program(*inputs)
        finally:
            _thread.trace = outer
        if trace.captures:
            self._keep(cell, key, inputs, trace.calls)
        else:
            self._compare(trace.keys)
        self._patience -= 1
        if self._patience <= 0:
            self._traced = None
        return self._returned(results)

    def untraced(self, *inputs: Any) -> Any:
        """Returns the results."""
        return self._returned(self._untraced(*inputs))

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

    def _captured(self, inputs: Sequence[Any], calls: Sequence[CapturedCall | None]) -> CapturedRun:
        slots: dict[Any, int] = {value: n for n, value in enumerate(self._inputs)}
        numbered = []
        for step, call in zip(self._steps, calls, strict=True):
            assert call is not None, "all are captured"
            taken = [slots.get(value) for value in step.inputs]
            given = [slots.setdefault(value, len(slots)) for value in step.outputs]
            numbered.append(Numbered(call, taken, given))
        forms = [form_of(x) for x in inputs]
        results = [slots[value] for value in self._outputs]
        return CapturedRun(forms, numbered, results, several=len(results) > 1)

    def _compare(self, keys: list[Any]) -> None:
        """Parts the steps whose inputs are others in every run, if they are the fewer ones."""
        before, self._keys = self._keys, keys
        if before:
            pairs = enumerate(zip(before, keys, strict=True))
            differ = {n for n, (old, new) in pairs if old != new}
            if 0 < 2 * len(differ) <= len(keys):
                self._part(differ)

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
        self._untraced = self._program(found)
        self._traced = None


def constants_of(inputs: Iterable[ir.Value | None]) -> list[bool]:
    """Says which inputs are the same arrays in every run."""
    return [value is not None and is_constant(value) for value in inputs]


def alone(step: Step) -> Step:
    """Returns a step that is captured by itself, if it is ``Capturable``."""
    return step.called(replayed(step.call, constants_of(step.inputs)))


def captured(steps: Iterable[Step], escaping: Iterable[ir.Value]) -> list[Step]:
    """Returns steps as fewer, of which those that can be captured together are one."""
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
        call=attach(tracer, tracer.untraced, tracer.untraced),
        inputs=inputs,
        outputs=outputs,
        nodes=tuple(node for step in span.steps for node in step.nodes),
        multiple=len(outputs) > 1,
        parts=tracer.parts,
    )
