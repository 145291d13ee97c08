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
class Output:
    """Where and how a client wants an output.

    Attributes:
        name: The model's output.
        parameters: As the client gave them.
    """

    name: str
    parameters: Parameters = field(default_factory=dict)


@dataclass(slots=True)
class Request:
    """What a client asks for.

    Attributes:
        inputs: Checked against the model's inputs.
        outputs: Those it wants, in this order; all if empty.
        id: Handed back.
        parameters: Of the whole request.
    """

    inputs: dict[str, Array]
    outputs: tuple[Output, ...] = ()
    id: str = ""
    parameters: Parameters = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the outputs that it wants; none for all."""
        return tuple([output.name for output in self.outputs]) if self.outputs else ()

    @property
    def timeout(self) -> float:
        """Seconds that it gives itself, which it says in microseconds; endless if it does not.

        Raises:
            BadRequest: It is no positive number.
        """
        if (said := self.parameters.get("timeout")) is None:
            return float("inf")
        try:
            microseconds = int(said)
        except (TypeError, ValueError, OverflowError):
            microseconds = -1
        if microseconds < 0 or isinstance(said, bool):
            raise BadRequest(f"timeout is {shown(said)}; expected microseconds")
        return microseconds / 1e6 if microseconds else float("inf")


def shown(value: object) -> str:
    """Returns a client's value as a message may repeat it."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
