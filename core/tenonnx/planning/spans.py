"""Consecutive steps that are captured and replayed as one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Self, TypeVar

from tenonnx.graph.values import ValueInfo
from tenonnx.provider import HOST, Step

# Steps from which on one call for all of them saves time. A step of several parts counts as those.
MIN_SPAN_STEPS = 2


@dataclass
class Span:
    """Consecutive steps, and where the values are that they exchange.

    Attributes:
        steps: In order.
        inputs: Values from outside, and whether each is wanted on the host.
        made: Values that its steps make, and whether they are on the host.
    """

    steps: list[Step] = field(default_factory=list)
    inputs: dict[tuple[ValueInfo, bool], None] = field(default_factory=dict)
    made: dict[ValueInfo, bool] = field(default_factory=dict)

    def takes(self, step: Step) -> bool:
        """Return whether a step needs nothing of the span's moved between host and device."""
        return all(
            value not in self.made or self.made[value] == (step.device_of_input(i) is HOST)
            for i, value in enumerate(step.inputs)
            if value is not None
        )

    def add(self, step: Step) -> None:
        """Add a step."""
        self.steps.append(step)
        for i, value in enumerate(step.inputs):
            if value is not None and value not in self.made and value.constant is None:
                self.inputs[value, step.device_of_input(i) is HOST] = None
        on_host = step.device_of_outputs is HOST
        self.made.update((value, on_host) for value in step.outputs)

    def halves(self) -> tuple[Self, Self]:
        """Return spans of the first and of the last half of the steps."""
        first, last = type(self)(), type(self)()
        half = len(self.steps) // 2
        for number, step in enumerate(self.steps):
            (first if number < half else last).add(step)
        return first, last


S = TypeVar("S", bound=Span)


def cut(
    steps: Iterable[Step], wanted: Callable[[Step], bool], kind: Callable[[], S], most: int = 0
) -> Iterator[S]:
    """Cut steps into spans of a kind; one that is not wanted there is alone.

    Args:
        steps: In order.
        wanted: Returns whether a step may be in a span of several.
        kind: Makes an empty span.
        most: Steps of a span at most; any number if 0.
    """
    span = kind()
    for step in steps:
        alone = not wanted(step)
        full = len(span.steps) == most > 0
        if span.steps and (alone or full or not span.takes(step)):
            yield span
            span = kind()
        span.add(step)
        if alone:
            yield span
            span = kind()
    if span.steps:
        yield span


def as_one(
    spans: Iterable[S],
    escaping: Iterable[ValueInfo],
    wanted: Callable[[Step], bool],
    one: Callable[[S, tuple[ValueInfo, ...]], Step | None],
    fits: Callable[[S, tuple[ValueInfo, ...]], bool] = lambda *_: True,
) -> list[Step]:
    """Return a step for each span of several steps, and the steps of others.

    Args:
        spans: In order.
        escaping: Values that something outside of all reads.
        wanted: Returns whether a step may be in a span of several.
        one: Makes a step of a span, and of what others read of it, which is all on the host or all
            on the device; ``None`` leaves its steps as they are.
        fits: Returns whether a span is small enough for one step; others are halved.
    """
    # From the last span to the first, because a span's outputs are what later ones read.
    later = set(escaping)
    found: list[Sequence[Step]] = []
    waiting = list(spans)
    while waiting:
        span = waiting.pop()
        outputs = tuple(value for value in span.made if value in later)
        if len(span.steps) > 1 and not fits(span, outputs):
            waiting += span.halves()
            continue
        later.update(value for value, _ in span.inputs)
        count = sum(len(step.parts) or 1 for step in span.steps)
        together = count >= MIN_SPAN_STEPS and wanted(span.steps[0])
        made = None
        if together and len({span.made[value] for value in outputs}) == 1:
            made = one(span, outputs)
        found.append(span.steps if made is None else [made])
    return [step for steps in reversed(found) for step in steps]
