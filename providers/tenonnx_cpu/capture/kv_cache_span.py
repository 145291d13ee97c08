"""Consecutive steps with caches among them, captured as one where the caches grow in place.

A language model's caches are bound to inputs and to outputs: memory of one size, to which each run
adds a few tokens. Then the shapes of all steps are the same from one token to the next, and the
capture goes through attention. How many tokens there are is in arrays that kernels read.

Of any other run, steps with caches are by themselves, and those between them are captured.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from tenonnx.by_name import cacheable
from tenonnx.graph.values import ValueInfo
from tenonnx.planning import spans
from tenonnx.process.later import Later
from tenonnx.provider import Step
from tenonnx_cpu.capture.capturable import Capturable
from tenonnx_cpu.capture.kv_cache_replay import KvCacheSpan
from tenonnx_cpu.capture.kv_cache_step import CACHES, LENGTHS, KvCacheStep
from tenonnx_cpu.capture.recent import Turns
from tenonnx_cpu.capture.span import MAX_SPAN_STEPS, Tracer, captured_without_caches, is_capturable
from tenonnx_cpu.jit import layout as at


@cacheable
class OutOfPlace(Tracer):
    """A span's steps where caches are not in place: each step with one is by itself."""

    @functools.cached_property
    def untraced_steps(self) -> Sequence[Step]:
        """The steps that run; steps between those with caches are one."""
        return captured_without_caches(self._steps, self._outputs, Turns())

    def into(self, inputs: Sequence[Any], buffers: Sequence[Any]) -> Any:
        """Return the results, in buffers where a step writes to one."""
        program = self._untraced
        given = [buffers[output.position] for output in program.direct]
        return self._returned(program.run_into(inputs, given))


def joined(steps: Sequence[Step], escaping: Collection[ValueInfo], turns: Turns) -> list[Step]:
    """Return steps as fewer: those with caches together with those around them."""
    readers = Counter(value for step in steps for value in step.inputs)
    made = {value for step in steps for value in step.outputs}

    def is_free(step: Step) -> bool:
        """Return whether nobody else reads a step's caches, no step makes them, callers get them.

        A layer that shares the caches of another one reads what that makes, and need not give any.
        """
        if not isinstance(step.call, KvCacheStep) or not step.call.joins:
            return False
        pasts = [step.inputs[place] for place in CACHES.values()]
        given = all(
            value is not None and value not in made and readers[value] == 1 for value in pasts
        )
        return given and all(n < len(step.outputs) and step.outputs[n] in escaping for n in CACHES)

    def wanted(step: Step) -> bool:
        return is_capturable(step) or is_free(step)

    cut = spans.cut(steps, wanted, spans.Span, MAX_SPAN_STEPS)
    parted = (part for span in cut for part in _behind_lengths(span))
    return spans.as_one(parted, escaping, wanted, functools.partial(_as_one, turns), _fits)


def _behind_lengths(span: spans.Span) -> Iterator[spans.Span]:
    """Yield a span; first, as spans of their own, the steps that compute lengths.

    They read what is longer in each run, as a mask is.
    """
    cached = [n for n, step in enumerate(span.steps) if isinstance(step.call, KvCacheStep)]
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


def _fits(span: spans.Span, outputs: tuple[ValueInfo, ...]) -> bool:
    """Return whether there is room for a span's inputs; outputs that are caches need none."""
    del outputs
    return len(span.inputs) < at.MOST_ARGUMENTS


def _as_one(turns: Turns, span: spans.Span, outputs: tuple[ValueInfo, ...]) -> Step | None:
    inputs = tuple(value for value, _ in span.inputs)
    cached = [step for step in span.steps if isinstance(step.call, KvCacheStep)]
    if not cached:
        return None
    places: dict[ValueInfo | None, int] = {value: n for n, value in enumerate(inputs)}
    pairs = {
        outputs.index(s.outputs[o]): places[s.inputs[i]] for s in cached for o, i in CACHES.items()
    }
    read = [step.inputs[place] for step in cached for place in LENGTHS]
    lengths = {places[value] for value in read if value in places}
    in_place = Tracer(
        list(map(_in_place, span.steps)), inputs, outputs, turns.take(len(span.steps))
    )
    apart = OutOfPlace(span.steps, inputs, outputs)
    return Step(
        call=KvCacheSpan(Later(apart), in_place.attached(), pairs, sorted(lengths)).run,
        inputs=inputs,
        outputs=outputs,
        multiple=True,
    )


def _in_place(step: Step) -> Step:
    """Return a step that writes to its caches, if it has any."""
    return (
        step.called(Capturable(step.call.written)) if isinstance(step.call, KvCacheStep) else step
    )
