"""Calls that a number bounds which the host knows, while what counts is on the device."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from tenonnx_cuda.capture.dynamic_length import DynamicCall
from tenonnx_cuda.chosen import Call


@dataclass(frozen=True)
class Bounded:
    """A call that gets a number on the host, which only says how much there may be.

    Attributes:
        call: Takes the inputs, and by ``_outs`` arrays to write outputs to.
        host: Inputs that it takes on the host, in place of those that the array kernel does.
        number: Which of them the number is.
        bounds: Inputs, and axes of theirs. For all numbers up to the least of those lengths the
            call does the same; without bounds, for no two.
        unlike: Inputs, and axes of theirs, for whose lengths it does something else.
        lengths: Inputs that change in every run and take little work to make.
        grown: The same call where its caches get longer.
    """

    call: Call
    host: tuple[int, ...]
    number: int
    bounds: tuple[tuple[int, int], ...]
    lengths: tuple[int, ...]
    unlike: tuple[tuple[int, int], ...] = ()
    grown: DynamicCall | None = None

    def spared(self, inputs: Sequence[Any]) -> Collection[int]:
        """Returns the number's position if the call does the same for all as large; or none."""
        number = inputs[self.number].item()
        if not self.bounds or any(inputs[i] is None for i, _ in (*self.bounds, *self.unlike)):
            return ()
        fits = all(number <= inputs[i].shape[axis] for i, axis in self.bounds)
        other = all(number != inputs[i].shape[axis] for i, axis in self.unlike)
        return (self.number,) if fits and other else ()

    def __call__(self, *inputs: Any, _outs: Any = None) -> Any:
        """Runs the call."""
        return self.call(*inputs, _outs=_outs)
