"""An execution provider over numpy that counts how often each operator is called."""

from __future__ import annotations

import dataclasses
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

    def __init__(self, options: Any = None, operators: tenonnx.OperatorTable | None = None) -> None:
        super().__init__(options or CountingOptions(), operators)
        self._lock = threading.Lock()

    def compile(self, segment: tenonnx.Segment) -> Sequence[tenonnx.Step]:
        """Returns the steps of an array provider, each with a counter around its call."""
        return [self._counted(step) for step in super().compile(segment)]

    def _counted(self, step: tenonnx.Step) -> tenonnx.Step:
        (node,) = step.nodes
        operator = f"{node.domain}::{node.op_type}" if node.domain else node.op_type
        name = operator if self.options.by == "operator" else node.name or operator
        calls, call, lock = self.options.calls, step.call, self._lock

        def counted(*inputs: Any) -> Any:
            # Sessions are used from many threads, and += is not atomic.
            with lock:
                calls[name] += 1
            return call(*inputs)

        return dataclasses.replace(step, call=counted)
