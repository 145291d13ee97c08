"""A request and its answer as both protocols share them: arrays by name."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from tenonnx_serve.errors import BadRequest

Array = np.ndarray[Any, np.dtype[Any]]
Parameters = dict[str, Any]

NOTHING: Final[Parameters] = {}
"""The parameters of a request that has none; never changed."""


@dataclass(slots=True)
class Request:
    """What a client asks for.

    Attributes:
        inputs: Checked against the model's inputs.
        outputs: Names of those it wants, in this order; all if empty.
        id: Handed back.
        timeout: Seconds that it may take at most; ``None`` leaves it to the server.
    """

    inputs: dict[str, Array]
    outputs: tuple[str, ...] = ()
    id: str = ""
    timeout: float | None = None


@dataclass(slots=True)
class Output:
    """Where and how a client wants an output.

    Attributes:
        name: The model's output.
        parameters: As the client gave them.
    """

    name: str
    parameters: Parameters = field(default_factory=dict)


def timeout_of(parameters: Parameters) -> float | None:
    """Returns the seconds that a request gives itself, which it says in microseconds.

    Raises:
        BadRequest: It is no positive number.
    """
    if (said := parameters.get("timeout")) is None:
        return None
    try:
        microseconds = int(said)
    except (TypeError, ValueError, OverflowError):
        microseconds = -1
    if microseconds < 0 or isinstance(said, bool):
        raise BadRequest(f"timeout is {shown(said)}; expected microseconds")
    return microseconds / 1e6 if microseconds else None


def shown(value: object) -> str:
    """Returns a client's value as a message may repeat it."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
