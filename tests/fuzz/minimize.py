"""Leaves of a case what it takes to fail as it does."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import onnx
from google.protobuf.message import DecodeError

from fuzz.drawing import Drawn
from fuzz.examining import Finding
from fuzz.messages import messages
from fuzz.runner import run_batch

SECONDS = 8.0
"""After which a case is small enough."""

Fails = Callable[[Drawn], bool]


def minimized(drawn: Drawn, finding: Finding, kernels: bool) -> Drawn:
    """Return a case that fails in the same way, with fewer runs and a smaller model."""

    def fails(case: Drawn) -> bool:
        (ran,) = run_batch([lambda: case], kernels, comparing=finding.kind == "difference")
        return ran.finding is not None and ran.finding.where == finding.where

    deadline = time.monotonic() + SECONDS
    for count in (1, 2, len(finding.rounds)):
        case = replace(drawn, rounds=finding.rounds[-count:])
        if finding.rounds and fails(case):
            drawn = case
            break
    if finding.kind == "hang" or drawn.suffix == ".ort":
        return drawn
    try:
        model = onnx.ModelProto.FromString(drawn.data)
    except DecodeError:
        return drawn
    case = replace(drawn, data=model.SerializeToString())
    return shrunk(case, fails, deadline) if fails(case) else drawn


def shrunk(drawn: Drawn, fails: Fails, deadline: float) -> Drawn:
    """Return the case without what it fails without, as far as time allows."""
    smaller = True
    while smaller:
        smaller = False
        position = 0
        while time.monotonic() < deadline:
            model = onnx.ModelProto.FromString(drawn.data)
            removal = _nth(removals(model), position)
            if removal is None:
                break
            removal()
            case = replace(drawn, data=model.SerializeToString())
            if fails(case):
                drawn, smaller = case, True
            else:
                position += 1
    return drawn


def _nth(found: Iterator[Any], position: int) -> Any:
    return next((each for i, each in enumerate(found) if i == position), None)


def removals(model: onnx.ModelProto) -> Iterator[Callable[[], None]]:
    """Yield what takes something away: halves of lists first, then an element, then a field."""
    for message in messages(model):
        for field, content in message.ListFields():
            if field.is_repeated and field.name != "dims":
                size = len(content)
                if size > 3:
                    yield lambda c=content, s=size: c.__delitem__(slice(0, s // 2))
                    yield lambda c=content, s=size: c.__delitem__(slice(s // 2, s))
                if size < 30:
                    yield from (lambda c=content, i=i: c.__delitem__(i) for i in range(size))
            elif not field.is_repeated and field.name not in ("raw_data", "ir_version", "graph"):
                yield lambda m=message, n=field.name: m.ClearField(n)
