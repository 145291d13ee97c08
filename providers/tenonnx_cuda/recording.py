"""Runs that are recorded once for each combination of input shapes, and then replayed.

A replay costs one call however many kernels there are. It reads and writes the very memory that was
recorded, so inputs are copied in, outputs are copied out, and one replay at a time is started.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tenonnx.operators import Namespace
from tenonnx.provider import Device, Step
from tenonnx_cuda.grouping import LEAST, Group, Program, groups, recordable
from tenonnx_cuda.platform import CannotRecordError, Recording, Stream

MOST: Final = 16
"""Recordings of a group that are kept: those replayed last."""

log = logging.getLogger("tenonnx")

SEEN: Final = "seen"
"""Run once, so that kernels are compiled and libraries have their workspaces."""

REFUSED: Final = "refused"


@dataclass(frozen=True)
class Take:
    """A recording, and the arrays that it reads and writes."""

    recording: Recording
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]


class Replayed:
    """A group of steps as one call.

    Args:
        program: What to record.
        stream: Where.
        xp: The namespace of its arrays.

    Attributes:
        replays: How many runs were replays.
        has_stream: That it goes to its stream by itself.
    """

    has_stream: Final = True

    def __init__(self, program: Program, stream: Stream, xp: Namespace) -> None:
        self._program = program
        self._stream = stream
        self._xp = xp
        self._takes: OrderedDict[Any, Take | str] = OrderedDict()
        self._lock = threading.Lock()
        self.replays = 0

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        """Returns the outputs, which no later run overwrites."""
        key = tuple(map(describe, inputs))
        with self._lock:
            take = self._takes.get(key)
            if take is None:
                self._keep(key, SEEN)
            elif take == SEEN:
                take = self._record(inputs)
                self._keep(key, take)
            if isinstance(take, Take):
                self._takes.move_to_end(key)
                return self._replay(take, inputs)
        with self._stream.active():
            return self._program(*inputs)

    def _record(self, inputs: Sequence[Any]) -> Take | str:
        xp = self._xp
        with self._stream.active():
            own = tuple(
                i if i is None or isinstance(i, np.ndarray) else xp.zeros(i.shape, i.dtype)
                for i in inputs
            )
        try:
            recording, outputs = self._stream.record(lambda: self._program(*own))
        except CannotRecordError as error:
            log.warning("a run is not recorded, and goes on without: %s", error)
            return REFUSED
        return Take(recording, own, outputs)

    def _replay(self, take: Take, inputs: Sequence[Any]) -> tuple[Any, ...]:
        with self._stream.active():
            for own, given in zip(take.inputs, inputs, strict=True):
                if own is not None and not isinstance(own, np.ndarray):
                    own[...] = given
            take.recording.launch()
            self.replays += 1
            return tuple(o.copy() if hasattr(o, "copy") else o for o in take.outputs)

    def _keep(self, key: Any, take: Take | str) -> None:
        self._takes[key] = take
        while len(self._takes) > MOST:
            self._takes.popitem(last=False)


def describe(given: Any) -> Any:
    """Names what a recording depends on: shape and type; for what is on the host, the contents."""
    if given is None:
        return None
    kind = given.shape, str(given.dtype)
    return (*kind, given.tobytes()) if isinstance(given, np.ndarray) else kind


def recorded(
    steps: Sequence[Step], escaping: frozenset[Any], stream: Stream, xp: Namespace, device: Device
) -> list[Step]:
    """Returns steps as fewer that are recorded; those that cannot be, as they are."""
    later: set[Any] = set(escaping)
    found: list[Step] = []
    for group in reversed(list(groups(steps))):
        outputs = [value for value in group.made if value in later]
        later.update(value for value, _ in group.inputs)
        found[:0] = _steps(group, outputs, stream, xp, device)
    return found


def _steps(
    group: Group, outputs: Sequence[Any], stream: Stream, xp: Namespace, device: Device
) -> list[Step]:
    on_host = {group.made[value] for value in outputs}
    if len(group.steps) < LEAST or not recordable(group.steps[0]) or on_host != {False}:
        return list(group.steps)
    program = Program(group, outputs)
    return [
        Step(
            call=Replayed(program, stream, xp),
            inputs=tuple(value for value, _ in program.inputs),
            outputs=program.outputs,
            nodes=tuple(node for step in group.steps for node in step.nodes),
            multiple=True,
            device=device,
            host=tuple(i for i, (_, wanted) in enumerate(program.inputs) if wanted),
        )
    ]
