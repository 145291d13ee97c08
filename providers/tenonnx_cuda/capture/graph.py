"""Runs of captured steps that are one CUDA graph for each combination of input shapes.

A replay costs one call however many kernels there are. It reads and writes the very memory that was
captured, so inputs are copied in, outputs are copied out, and one replay of a stream's at a time is
started: what graphs have in between they have in common.
Caches that the caller binds as input and output stay where they are, and large inputs as long as
they do not move.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tenonnx.planning import spans
from tenonnx.provider import Step
from tenonnx_cuda.capture.capturable import is_capturable, lengths_first
from tenonnx_cuda.capture.dynamic_length import within
from tenonnx_cuda.capture.program import DeviceProgram
from tenonnx_cuda.capture.replay import NOT_CAPTURED, Captures, described
from tenonnx_cuda.capture.step_fusion import fuse_steps, roles_of
from tenonnx_cuda.capture.tracer import address, tracing
from tenonnx_cuda.device import CudaDevice
from tenonnx_cuda.platform import CannotCaptureError, Graph, Platform, Stream

log = logging.getLogger("tenonnx")

# Bytes of an input from which on copying it takes longer than starting to.
MIN_SEPARATE_COPY_BYTES: Final = 1 << 16


@dataclass(frozen=True)
class CapturedGraph:
    """The state of runs: after the first one, the places of its large inputs; then, a graph.

    Attributes:
        places: Addresses of the inputs that are read where the caller has them, by position.
        graph: What is replayed; ``None`` before one is captured, so that kernels are
            compiled and libraries have their workspaces by then.
        inputs: What it reads; ``None`` for absent ones, and the caller's.
        outputs: What it writes; ``None`` for the caller's.
        held: What it reads besides, which is only kept here.
    """

    places: Mapping[int, int]
    graph: Graph | None = None
    inputs: tuple[Any, ...] = ()
    outputs: tuple[Any, ...] = ()
    held: Sequence[Any] = ()

    def is_due(self, inputs: Sequence[Any]) -> bool:
        """Return whether there is no graph, or an input is not where it reads it."""
        return self.graph is None or any(
            address(inputs[i]) != at or not inputs[i].flags.c_contiguous
            for i, at in self.places.items()
        )


class GraphedSteps:
    """A group of steps as one call, by a CUDA graph where one can be had.

    An input that an output is bound to is used where it is: a cache that is updated in place. A
    graph is of its address, so it serves as long as callers bind the same one.

    Args:
        program: What to capture; its steps are replayed by themselves where there is no graph.
        stream: Where.
        platform: The device.
        grows: Caches get longer from run to run. Replays of the steps serve all lengths and a
            graph would be of one, so it is captured only if they do not.

    Attributes:
        replays: How many runs were replays.
        has_stream: That it goes to its stream by itself.
    """

    has_stream: Final = True

    def __init__(
        self,
        program: DeviceProgram,
        stream: Stream,
        platform: Platform,
        *,
        grows: bool = False,
    ) -> None:
        self._program = program
        self._grows = grows
        self._stream = stream
        self._platform = platform
        self._captured = Captures[CapturedGraph | str]()
        self._unbound = (None,) * len(program.outputs)
        self.replays = 0

    def __call__(self, *inputs: Any, _outs: Sequence[Any] | None = None) -> tuple[Any, ...]:
        """Return the outputs, which no later run overwrites unless they are the caller's."""
        outs = tuple(_outs or self._unbound)
        kept = bound_inputs(inputs, outs)
        key = self._key(inputs, kept)
        with self._stream.replaying:
            captured = self._captured.get(key)
            if captured is None and key is not None:
                self._see(key, CapturedGraph(large(inputs, kept)))
            elif isinstance(captured, CapturedGraph) and captured.is_due(inputs):
                # What has moved once is copied from then on.
                there = large(inputs, kept)
                steady = {i: at for i, at in captured.places.items() if there.get(i) == at}
                captured = self._capture(inputs, outs, kept, steady)
                self._captured.keep(key, captured)
            if isinstance(captured, CapturedGraph) and captured.graph is not None:
                self._captured.move_to_end(key)
                return self._replay(captured, captured.graph, inputs, outs)
        with self._stream.active():
            return self._program(*inputs, _outs=outs)

    def _see(self, key: Any, seen: CapturedGraph) -> None:
        """Note a first run. Where caches grow, it has to come again at once to be captured."""
        if self._grows:
            for other, known in list(self._captured.items()):
                if isinstance(known, CapturedGraph) and known.graph is None:
                    del self._captured[other]
        self._captured.keep(key, seen)

    def _key(self, inputs: Sequence[Any], kept: Mapping[int, int]) -> Any:
        known = {
            i: (x.shape, x.dtype.num, kept.get(i))
            for i, x in enumerate(inputs)
            if x is not None and not isinstance(x, np.ndarray)
        }
        return described(inputs, within(self._program.limits, inputs), known)

    def _capture(
        self,
        inputs: Sequence[Any],
        outs: Sequence[Any],
        kept: Mapping[int, int],
        steady: Mapping[int, int],
    ) -> CapturedGraph | str:
        addresses, callers = set(kept.values()), kept.keys() | steady.keys()
        bound = [o if o is not None and address(o) in addresses else None for o in outs]
        try:
            with self._stream.active():
                own = tuple(
                    given
                    if given is None or isinstance(given, np.ndarray) or i in callers
                    else given.copy()
                    for i, given in enumerate(inputs)
                )
            with tracing(by_stream=True) as trace:
                graph, made = self._stream.capture(lambda: self._program(*own, _outs=bound))
        except (CannotCaptureError, MemoryError) as error:
            log.warning("a run is not captured, and goes on without: %s", error)
            return NOT_CAPTURED
        # The caller's memory is not held: a graph is replayed only while it is there.
        read = tuple(None if i in callers else given for i, given in enumerate(own))
        pairs = zip(made, bound, strict=True)
        outputs = tuple(None if m is b else m for m, b in pairs)
        return CapturedGraph(steady, graph, read, outputs, trace.held)

    def _replay(
        self,
        captured: CapturedGraph,
        graph: Graph,
        inputs: Sequence[Any],
        outs: Sequence[Any],
    ) -> tuple[Any, ...]:
        with self._stream.active():
            for own, given in zip(captured.inputs, inputs, strict=True):
                if own is not None and not isinstance(own, np.ndarray):
                    self._platform.write(own, given)
            graph()
            self.replays += 1
            pairs = zip(captured.outputs, outs, strict=True)
            return tuple(out if made is None else self._kept(made, out) for made, out in pairs)

    def _kept(self, made: Any, out: Any) -> Any:
        """Return what was made where no replay overwrites it: in a caller's array, or anew."""
        if out is None or (out.shape, out.dtype) != (made.shape, made.dtype):
            out = self._platform.xp.empty(made.shape, made.dtype)
        self._platform.write(out, made)
        return out


def bound_inputs(inputs: Sequence[Any], outs: Sequence[Any]) -> dict[int, int]:
    """Return the addresses of the inputs that are bound to outputs, too, by their positions."""
    bound = {address(out): out for out in outs if out is not None}
    if not bound:
        return {}
    found = {}
    for i, given in enumerate(inputs):
        if given is None or isinstance(given, np.ndarray):
            continue
        out = bound.get(at := address(given))
        if out is None or (out.shape, out.dtype) != (given.shape, given.dtype):
            continue
        if out.flags.c_contiguous and given.flags.c_contiguous:
            found[i] = at
    return found


def large(inputs: Sequence[Any], kept: Mapping[int, int]) -> dict[int, int]:
    """Return the addresses of large inputs that outputs are not bound to, by their positions."""
    return {
        i: address(given)
        for i, given in enumerate(inputs)
        if given is not None
        and not isinstance(given, np.ndarray)
        and i not in kept
        and given.nbytes >= MIN_SEPARATE_COPY_BYTES
        and given.flags.c_contiguous
    }


def captured_graphs(
    steps: Sequence[Step], escaping: frozenset[Any], stream: Stream, device: CudaDevice
) -> list[Step]:
    """Return steps as fewer that are graphs; those that are none, fused as far as they can be."""

    def one(span: spans.Span, outputs: tuple[Any, ...]) -> Step | None:
        if span.made[outputs[0]]:
            return None
        program, grows = DeviceProgram(span, outputs), any(map(roles_of, span.steps))
        call = GraphedSteps(program, stream, device.platform, grows=grows)
        return program.step(call, device)

    first, others = lengths_first(steps)
    read = {value for step in others for value in step.inputs}
    parts = (
        fuse_steps(first, escaping | read, device, is_capturable),
        fuse_steps(others, escaping, device, is_capturable),
    )
    cut = [span for part in parts for span in spans.cut(part, is_capturable, spans.Span)]
    return spans.as_one(cut, escaping, is_capturable, one)
