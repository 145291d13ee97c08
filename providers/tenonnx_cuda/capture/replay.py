"""Steps that do again what they did for inputs that lay alike, at other addresses.

Before a kernel is started, Python looks at its inputs, chooses, allocates, and puts arguments
together. That takes longer than many kernels do, and depends on how inputs lie, not on where. So
what a call allocates and starts is traced once, and from then on done without the call.
"""

from __future__ import annotations

import functools
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np

from tenonnx.operators import Array
from tenonnx.provider import Step
from tenonnx_cuda.capture.captured_call import CapturedCall
from tenonnx_cuda.capture.dynamic_length import (
    NO_DYNAMIC_INPUTS,
    DynamicCall,
    DynamicInputs,
    within,
)
from tenonnx_cuda.capture.memory_plan import capture
from tenonnx_cuda.capture.tracer import current_trace, is_capturing, tracing
from tenonnx_cuda.kv_cache import ADDRESS_MODULUS
from tenonnx_cuda.platform import Platform, Stream

# Layouts of inputs whose captures are kept.
MAX_CAPTURES: Final = 16

T = TypeVar("T")

# In place of what was traced of a call that cannot be done again.
NOT_CAPTURED: Final = "refused"

# Elements of an input on the host that a step may depend on.
MAX_COMPARED_ELEMENTS: Final = 64


class Captures(OrderedDict[Any, T]):
    """The latest captures, or refusals to capture, by the layout of inputs."""

    def keep(self, key: Any, captured: T) -> None:
        """Keep it as the last one to be dropped."""
        self[key] = captured
        self.move_to_end(key)
        if len(self) > MAX_CAPTURES:
            self.popitem(last=False)


class Look(NamedTuple):
    """The facts about a call before it is done.

    Attributes:
        arrays: Its inputs, and the buffers for its outputs.
        growth: What of them may be longer another time.
        key: How those lie; ``None`` if that is not to be traced.
        captured: What was traced.
    """

    arrays: Sequence[Any]
    growth: DynamicInputs = NO_DYNAMIC_INPUTS
    key: Any = None
    captured: CapturedCall | None = None

    def replay(self, empty: Callable[..., Array], part: Callable[..., Array]) -> Any:
        """Do what was traced."""
        assert self.captured is not None, "something was traced"
        return self.captured.replay(
            self.arrays, self.growth.length - self.captured.length, empty, part
        )


class Replayed:
    """A call of arrays that is done again.

    Args:
        call: It, with what it does not depend on if that is more than where inputs lie.
        platform: The device.

    Attributes:
        dynamic: The call, with what it does not depend on.
        missed: How often in a row it was not repeated.
    """

    def __init__(self, call: Callable[..., Any] | DynamicCall, platform: Platform) -> None:
        self.dynamic = call if isinstance(call, DynamicCall) else DynamicCall(call)
        self._call = self.dynamic.call
        self._platform = platform
        self.missed = 0
        self._captured = Captures[CapturedCall | str | None]()
        # What is started has its addresses in one place: no two threads may write them at once.
        self._lock = threading.Lock()
        # Its signature says which buffers it takes; its attributes are no business of this one's.
        functools.update_wrapper(self, self._call, updated=())

    def __call__(self, *inputs: Any, **buffers: Any) -> Any:
        """Return what the call does, on the active stream."""
        if current_trace() is not None or is_capturing():  # of steps around this one
            return self._call(*inputs, **buffers)
        look = self._look(inputs, buffers)
        if look.captured is not None:
            with self._lock:
                return look.replay(self._platform.xp.empty, self._platform.part)
        return self._done(look, inputs, buffers)

    def on(self, stream: Stream) -> Callable[..., Any]:
        """Return the call on a stream."""
        run = functools.partial(self._run_on, stream, stream.ordered())
        return functools.update_wrapper(run, self._call, updated=())

    def _run_on(
        self,
        stream: Stream,
        ordered: AbstractContextManager[object],
        *inputs: Any,
        **buffers: Any,
    ) -> Any:
        look = self._look(inputs, buffers)
        if (captured := look.captured) is not None:
            if not (captured.made or captured.starts):
                return look.replay(stream.empty, self._platform.part)
            try:
                with self._lock, ordered:
                    return look.replay(stream.empty, self._platform.part)
            except MemoryError:
                look = look._replace(key=None)  # which the stream makes room for, or explains
        with stream.active():
            return self._done(look, inputs, buffers)

    def around(self, wrap: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Replayed:
        """Return the same of another call around this one, for what only first runs have to do."""
        return Replayed(replace(self.dynamic, call=wrap(self._call)), self._platform)

    def _look(self, inputs: Sequence[Any], buffers: Mapping[str, Any]) -> Look:
        """Return what was traced of arrays that lie so; how they do, if that may be traced."""
        arrays = (*inputs, *arrays_of(buffers)) if buffers else inputs
        dynamic = self.dynamic
        growth = dynamic.look(arrays) if dynamic.caches else NO_DYNAMIC_INPUTS
        spared = within(dynamic.limits, inputs) if dynamic.limits and not growth.known else ()
        key = described(arrays, spared, growth.known)
        captured = None if key is None else self._captured.get(key)
        if not isinstance(captured, CapturedCall):
            return Look(arrays, growth, None if captured is NOT_CAPTURED else key)
        if not captured.fits(arrays, growth.rooms):
            return Look(arrays)
        self.missed = 0
        return Look(arrays, growth, key, captured)

    def _done(self, look: Look, inputs: Sequence[Any], buffers: Mapping[str, Any]) -> Any:
        """Call, and note what that does if arrays lay so before."""
        self.missed += 1
        if look.key not in self._captured:  # kernels are compiled, and libraries make plans
            if look.key is not None:
                self._keep(look.key, None)
            return self._call(*inputs, **buffers)
        with tracing(arrays_of(buffers)) as trace:
            result = self._call(*inputs, **buffers)
        captured = capture(trace, look.arrays, result, look.growth)
        if captured is not None or not look.growth.known:
            self._keep(look.key, captured or NOT_CAPTURED)
        else:
            with self._lock:  # another time, what is behind caches may be free
                self._captured.pop(look.key, None)
        return result

    def _keep(self, key: Any, captured: CapturedCall | str | None) -> None:
        with self._lock:
            self._captured.keep(key, captured)


def dynamic_of(step: Step) -> DynamicCall | None:
    """Return what a step does not depend on, if it is repeated."""
    return step.call.dynamic if isinstance(step.call, Replayed) else None


def arrays_of(buffers: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return what a call may write its outputs to: an array, or several, or ``None``s."""
    found: list[Any] = []
    for buffer in buffers.values():
        found += buffer if isinstance(buffer, tuple | list) else (buffer,)
    return tuple(found)


def described(
    arrays: Sequence[Any],
    spared: Collection[int] = (),
    known: Mapping[int, Any] = NO_DYNAMIC_INPUTS.known,
) -> Any:
    """Return all that a call may depend on; ``None`` if that is too much.

    Args:
        arrays: Inputs, and buffers.
        spared: Positions of those whose contents make no difference.
        known: What it may depend on of some, by their positions.
    """
    found: list[Any] = []
    for i, x in enumerate(arrays):
        if x is None:
            found.append(None)
        elif i in known:
            found.append(known[i])
        elif not isinstance(x, np.ndarray):
            found.append((x.shape, x.strides, x.dtype, x.data.ptr % ADDRESS_MODULUS))
        elif i in spared:
            found.append((x.shape, x.dtype))
        elif x.size <= MAX_COMPARED_ELEMENTS:
            found.append((x.shape, x.dtype, x.tobytes()))
        else:
            return None
    return tuple(found)
