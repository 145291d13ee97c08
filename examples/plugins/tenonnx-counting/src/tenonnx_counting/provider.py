"""An execution provider over numpy that counts how often each operator is called."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import tenonnx
from tenonnx_array.provider import ArrayProvider


@dataclass
class CountingOptions:
    """Options of the provider.

    Attributes:
        calls: Where the counts go.
        by: What is counted apart: ``"operator"`` or ``"node"``.
    """

    calls: Counter[str] = field(default_factory=Counter)
    by: str = "operator"

    def __post_init__(self) -> None:
        if self.by not in ("operator", "node"):
            raise ValueError(f"by is {self.by!r}; expected 'operator' or 'node'")


class CountingExecutionProvider(ArrayProvider):
    """Runs every operator that numpy can, and counts the calls."""

    name: ClassVar[str] = "CountingExecutionProvider"
    aliases: ClassVar[tuple[str, ...]] = ("counting",)
    Options: ClassVar[type | None] = CountingOptions

    _lock: ClassVar[threading.Lock] = threading.Lock()

    def compile(self, segment: tenonnx.Segment) -> Sequence[tenonnx.Step]:
        """Return the steps of an array provider, each with a counter around its call."""
        return [self._counted(step) for step in super().compile(segment)]

    def _counted(self, step: tenonnx.Step) -> tenonnx.Step:
        (node,) = step.nodes
        operator = f"{node.domain}::{node.op_type}" if node.domain else node.op_type
        options = self.options or CountingOptions()
        name = operator if options.by == "operator" else node.name or operator
        calls, call = options.calls, step.call

        def counted(*inputs: Any) -> Any:
            # Sessions are used from many threads, and += is not atomic.
            with self._lock:
                calls[name] += 1
            return call(*inputs)

        return step.called(counted)
