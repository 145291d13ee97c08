"""A step that has a cache among its inputs, and returns that with new tokens in it."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from tenonnx.by_name import cacheable
from tenonnx_cpu.capture.capturable import Capturable
from tenonnx_cpu.capture.launch import Launch, done
from tenonnx_cpu.capture.recent import at_once

NDArray: TypeAlias = np.ndarray[Any, Any]

# The outputs that are caches, and the inputs that they continue.
CACHES = {1: 3, 2: 4}

# The inputs that hold numbers of tokens; the kernel reads them.
LENGTHS = 5, 6


@cacheable
@dataclass(frozen=True)
class KvCacheStep(Capturable):
    """A captured step with a capture of its own for caches that are bound to their outputs.

    Attributes:
        function: Returns results from the operator's inputs.
        in_place: Returns the first one from the same inputs and writes to their caches; or all.
        joins: Whether steps around it may be captured with it. It must do no harm to run again with
            caches that it has written to.
    """

    in_place: Callable[..., Any] = operator.not_
    joins: bool = True

    def __call__(self, *inputs: Any, _outs: Sequence[Any] = (None, None, None)) -> Any:
        """Return the results; caches are buffers' memory if they are in them already."""
        _, keys, values = (*_outs, None, None)[:3]  # a node need not have them as outputs
        if not (is_memory_of(keys, inputs[3]) and is_memory_of(values, inputs[4])):
            return done(self.function(*inputs), inputs)
        given = (*inputs[:3], keys, values, *inputs[5:])
        made = done(self.in_place(*given), given)
        return made if isinstance(made, tuple) else (made, keys, values, None)

    def written(self, *inputs: Any) -> Any:
        """Return a launch of all results: the caches are the inputs, or those that were made."""
        made = self.in_place(*inputs)
        if type(made) is Launch and not isinstance(made.result, tuple):
            return made._replace(result=(made.result, inputs[3], inputs[4], None))
        return made

    def replayed(self, constants: Sequence[bool], wait: Callable[[], int] = at_once) -> KvCacheStep:
        """Return what a step calls."""
        ways = (self.function, self.in_place)
        function, in_place = (Capturable(way).replayed(constants, wait) for way in ways)
        return KvCacheStep(function, in_place=in_place)


def is_memory_of(buffer: NDArray | None, cache: NDArray | None) -> bool:
    """Return whether a buffer for a cache is the very memory of what that begins with."""
    if buffer is None or cache is None or not buffer.flags.c_contiguous:
        return False
    if buffer is cache:
        return True
    same = buffer.shape == cache.shape and buffer.strides == cache.strides
    return same and buffer.dtype == cache.dtype and buffer.ctypes.data == cache.ctypes.data
