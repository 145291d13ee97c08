"""Sums of a trace: the time of operators and nodes, and the rest of a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

Event = dict[str, Any]

SUFFIX = "_kernel_time"
RUN_EVENT = "model_run"
MICROSECOND = 1e-6


@dataclass
class Hot:
    """The cost of one node, or of all nodes of one operator.

    Attributes:
        name: The node, or the operator.
        operator: The operator.
        provider: The provider that ran it.
        kernel: The kernel's function.
        calls: How often it ran.
        seconds: Its total time.
        share: Its share of a run's time.
        output_bytes: The bytes of all its outputs.
        copied_bytes: The bytes that were copied from other devices for it.
    """

    name: str
    operator: str
    provider: str
    kernel: str
    calls: int = 0
    seconds: float = 0.0
    share: float = 0.0
    output_bytes: int = 0
    copied_bytes: int = 0

    def as_data(self) -> dict[str, Any]:
        """Return the fields by name."""
        return dict(vars(self))


def by_node(events: Sequence[Event]) -> list[Hot]:
    """Return the cost of every node, the longest first."""
    return _add_up(events, lambda event: event["name"].removesuffix(SUFFIX))


def by_operator(events: Sequence[Event]) -> list[Hot]:
    """Return the cost of every operator, the longest first."""
    return _add_up(events, lambda event: event["args"]["op_name"])


@dataclass(frozen=True)
class Watched:
    """The mean times of a watched run, in seconds.

    Attributes:
        run: The run without the cost of watching: all operators and the rest.
        rest: The time outside of operators: between steps, and checks of inputs and outputs.
        watching: The cost of watching.
    """

    run: float
    rest: float
    watching: float


def watched(events: Sequence[Event]) -> Watched:
    """Return the mean times of a run."""
    runs = [event for event in events if event["name"] == RUN_EVENT]
    if not runs:
        return Watched(0.0, 0.0, 0.0)
    whole = sum(event["dur"] for event in runs)
    watching = sum(float(event["args"]["watching_us"]) for event in runs)
    nodes = sum(event["dur"] for event in events if event["cat"] == "Node")
    scale = MICROSECOND / len(runs)
    return Watched((whole - watching) * scale, (whole - watching - nodes) * scale, watching * scale)


def _add_up(events: Sequence[Event], key: Callable[[Event], str]) -> list[Hot]:
    found: dict[str, Hot] = {}
    for event in events:
        if event["cat"] != "Node":
            continue
        args, name = event["args"], key(event)
        hot = found.setdefault(name, Hot(name, args["op_name"], args["provider"], args["kernel"]))
        hot.calls += 1
        hot.seconds += event["dur"] * MICROSECOND
        hot.output_bytes += int(args["output_size"])
        hot.copied_bytes += int(args["copied_size"])
    runs = sum(event["name"] == RUN_EVENT for event in events)
    total = watched(events).run * runs or 1.0
    for hot in found.values():
        hot.share = hot.seconds / total
    return sorted(found.values(), key=lambda hot: -hot.seconds)
