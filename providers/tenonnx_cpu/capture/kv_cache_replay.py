"""The call of steps with caches among them: apart, as a process with a cached plan needs it alone.

It takes results and caches from where they are bound; ``kv_cache_span`` makes it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tenonnx.by_name import cacheable
from tenonnx.process.later import Later
from tenonnx_cpu.capture.capturable import Cell
from tenonnx_cpu.capture.kv_cache_step import is_memory_of
from tenonnx_cpu.capture.launch import is_fixed

if TYPE_CHECKING:
    from tenonnx.planning.step import Step


@cacheable
class KvCacheSpan:
    """The call of a span's steps.

    Args:
        apart: An ``OutOfPlace``.
        in_place: Takes the span's inputs, and writes to the caches among them.
        caches: Which outputs are caches, and the inputs that they continue.
        lengths: Inputs that hold numbers of tokens.
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
        """Return the results; caches are buffers' memory if they are in them already."""
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

    @property
    def single_steps(self) -> tuple[Step, ...]:
        """Its steps, by themselves."""
        return self._apart.open().single_steps  # type: ignore[no-any-return]  # they are steps

    @property
    def capture_cell(self) -> Cell | None:
        """The cell of the steps that write to caches; ``None`` where nothing is captured."""
        own = getattr(self._in_place, "__self__", None)
        return own if isinstance(own, Cell) else None


def _buffer_of(made: Any, buffer: Any) -> Any:
    """Return a buffer if a result is a view of the whole of it; else the result."""
    root = buffer if buffer.base is None else buffer.base
    return buffer if made is buffer or made.base is buffer or made.base is root else made
