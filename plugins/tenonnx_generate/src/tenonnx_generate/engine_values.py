"""Values of an engine's interface: its limits, and the events of a run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tenonnx_generate.errors import Refused
from tenonnx_generate.turns import EngineEvent


@dataclass(frozen=True)
class EngineCapabilities:
    """The limits of an engine.

    Attributes:
        configured_max_batch_size: Requests that a step serves.
        max_scheduled_tokens: Tokens of prompts that a step runs beside them.
        max_request_length: Tokens that all turns of a request may have.
        max_total_tokens: Tokens that the turns which are run may have together.
        max_waiting_turns: Turns that may wait to be run.
    """

    configured_max_batch_size: int
    max_scheduled_tokens: int
    max_request_length: int
    max_total_tokens: int
    max_waiting_turns: int


@dataclass(frozen=True)
class EngineLoad:
    """The load of an engine at a moment.

    Attributes:
        running: Turns that have a slot of the caches.
        waiting: Turns that wait for one.
        cache_share: The share of the caches that holds tokens, 0 to 1.
    """

    running: int
    waiting: int
    cache_share: float


class EngineEventBuffer:
    """The events of a run, by number.

    Args:
        capacity: How many there may be.
    """

    def __init__(self, capacity: int) -> None:
        if capacity < 1:
            raise Refused(f"the capacity is {capacity}; expected at least 1")
        self.capacity = int(capacity)
        self.events: list[EngineEvent] = []

    def __len__(self) -> int:
        return len(self.events)

    def __getitem__(self, index: int) -> EngineEvent:
        return self.events[index]

    def __iter__(self) -> Iterator[EngineEvent]:
        return iter(self.events)
