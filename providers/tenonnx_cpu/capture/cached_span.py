"""Consecutive steps with caches among them, captured as one where the caches grow in place.

A language model's caches are bound to inputs and to outputs: memory of one size, to which each run
adds a few tokens. Then the shapes of all steps are the same from one token to the next, and the
capture goes through attention. How many tokens there are is in arrays that kernels read.

Of any other run, steps with caches are by themselves, and those between them are captured.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tenonnx.planning import spans
from tenonnx.plans.later import Later
from tenonnx.provider import Step
from tenonnx_cpu.capture.cached_step import CACHES, LENGTHS, CachedStep, is_memory_of
from tenonnx_cpu.capture.capturable import Capturable, Cell
from tenonnx_cpu.capture.launch import is_fixed
from tenonnx_cpu.capture.span import MOST, Tracer, alone, captured_apart, is_capturable
from tenonnx_cpu.jit import layout as at

if TYPE_CHECKING:
    import onnx_ir as ir

    from tenonnx_cpu.capture.kept_run import KeptRun


class Apart(Tracer):
    """A span's steps where caches are not in place: each step with one is by itself."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles it as it was before the first call."""
        _, given = super().__reduce__()
        return _again, given

    @functools.cached_property
    def untraced_steps(self) -> Sequence[Step]:
        """The steps that run; steps between those with caches are one."""
        return captured_apart(self._steps, self._outputs)

    def into(self, inputs: Sequence[Any], buffers: Sequence[Any]) -> Any:
        """Returns the results, in buffers where a step writes to one."""
        program = self._untraced
        given = [buffers[output.position] for output in program.direct]
        return self._returned(program.run_into(inputs, given))


class CachedSpan:
    """The call of a span's steps.

    Args:
        apart: An ``Apart``.
        in_place: Takes the span's inputs, and writes to the caches among them.
        caches: Which outputs are caches, and the inputs that they continue.
        lengths: Inputs that say how many tokens there are.
    """

    def __init__(
        self,
        apart: Later,
        in_place: Callable[..., Any],
        caches: Mapping[int, int],
        lengths: Sequence[int],
    ) -> None:
        self._apart, self._in_place = apart, in_place
        self._caches, self._lengths = tuple(caches.items()), tuple(lengths)

    def run(self, *inputs: Any, _outs: Sequence[Any] = ()) -> Any:
        """Returns the results; caches are buffers' memory if they are in them already."""
        if not _outs:
            return self._apart.open().untraced(*inputs)
        for output, place in self._caches:
            if not is_memory_of(_outs[output], inputs[place]):
                return self._apart.open().into(inputs, _outs)
        given = list(inputs)
        for output, place in self._caches:
            given[place] = _outs[output]
        for place in self._lengths:
            if is_fixed(given[place]):  # its elements would be a part of the capture
                given[place] = np.array(given[place])
        made = list(self._in_place(*given))
        for output, place in self._caches:
            made[output] = _buffer_of(made[output], given[place])
        return tuple(made)

    def __checked__(self) -> Callable[..., Any]:
        """Returns what calls its steps one after the other, and looks each time whether to stop."""
        return functools.partial(self._apart.open().checked, Cell())

    def __captures__(self, names: Mapping[int, str]) -> list[KeptRun]:
        """Returns what was captured, for a plan that is kept."""
        own = getattr(self._in_place, "__self__", None)
        return own.__captures__(names) if isinstance(own, Cell) else []

    def __take__(self, captures: Iterable[KeptRun], namespace: Mapping[str, Any]) -> None:
        """Has what a plan was kept with replayed."""
        own = getattr(self._in_place, "__self__", None)
        if isinstance(own, Cell):
            own.__take__(captures, namespace)


def _buffer_of(made: Any, buffer: Any) -> Any:
    """Returns a buffer if a result is a view of the whole of it; else the result."""
    root = buffer if buffer.base is None else buffer.base
    return buffer if made is buffer or made.base is buffer or made.base is root else made


def _again(
    steps: Iterable[tuple[Any, ...]], inputs: Sequence[ir.Value], outputs: Sequence[ir.Value]
) -> Apart:
    """Returns the steps of a plan that was kept."""
    made = [Step(call, taken, given, (), multiple) for call, taken, given, multiple in steps]
    return Apart(made, inputs, outputs)


def joined(steps: Sequence[Step], escaping: Collection[ir.Value]) -> list[Step]:
    """Returns steps as fewer: those with caches together with those around them."""
    readers = Counter(value for step in steps for value in step.inputs)

    def is_free(step: Step) -> bool:
        """Says whether nothing else in the span reads a step's caches, and somebody gets them."""
        if not isinstance(step.call, CachedStep) or not step.call.joins:
            return False
        pasts = [step.inputs[place] for place in CACHES.values()]
        given = all(value is not None and readers[value] == 1 for value in pasts)
        return given and all(step.outputs[n] in escaping for n in CACHES)

    def wanted(step: Step) -> bool:
        return is_capturable(step) or is_free(step)

    cut = spans.cut(steps, wanted, spans.Span, MOST)
    parted = (part for span in cut for part in _behind_lengths(span))
    return spans.as_one(parted, escaping, wanted, _as_one)


def _behind_lengths(span: spans.Span) -> Iterator[spans.Span]:
    """Yields a span; first, as spans of their own, the steps that compute lengths.

    They read what is longer in each run, as a mask is.
    """
    cached = [n for n, step in enumerate(span.steps) if isinstance(step.call, CachedStep)]
    lengths = {span.steps[n].inputs[place] for n in cached for place in LENGTHS}
    makers = [n for n, step in enumerate(span.steps) if not lengths.isdisjoint(step.outputs)]
    if not makers or max(makers) > cached[0]:
        yield span
        return
    for steps in (span.steps[: max(makers) + 1], span.steps[max(makers) + 1 :]):
        part = spans.Span()
        for step in steps:
            part.add(step)
        yield part


def _as_one(span: spans.Span, outputs: tuple[ir.Value, ...]) -> Step | None:
    inputs = tuple(value for value, _ in span.inputs)
    cached = [step for step in span.steps if isinstance(step.call, CachedStep)]
    if not cached or not len(inputs) < at.MOST_ARGUMENTS:
        return None
    places: dict[ir.Value | None, int] = {value: n for n, value in enumerate(inputs)}
    pairs = {
        outputs.index(s.outputs[o]): places[s.inputs[i]] for s in cached for o, i in CACHES.items()
    }
    read = [step.inputs[place] for step in cached for place in LENGTHS]
    lengths = {places[value] for value in read if value in places}
    in_place = Tracer(list(map(_in_place, span.steps)), inputs, outputs)
    apart = Apart(span.steps, inputs, outputs)
    return Step(
        call=CachedSpan(Later(apart), in_place.attached(), pairs, sorted(lengths)).run,
        inputs=inputs,
        outputs=outputs,
        nodes=tuple(node for step in span.steps for node in step.nodes),
        multiple=True,
        parts=tuple(map(alone, span.steps)),
    )


def _in_place(step: Step) -> Step:
    """Returns a step that writes to its caches, if it has any."""
    return step.called(Capturable(step.call.written)) if isinstance(step.call, CachedStep) else step
