"""A request and its answer for both protocols: arrays by name."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from tenonnx_serve.errors import BadRequest

Array = np.ndarray[Any, np.dtype[Any]]
Parameters = dict[str, Any]

# The parameters of a request without any; never changed.
NO_PARAMETERS: Final[Parameters] = {}


@dataclass(slots=True)
class Output:
    """An output that a client requests.

    Attributes:
        name: The model's output.
        parameters: The client's parameters of it.
    """

    name: str
    parameters: Parameters = field(default_factory=dict)


@dataclass(slots=True)
class Request:
    """A client's request.

    Attributes:
        inputs: Checked against the model's inputs.
        outputs: The requested outputs, in this order; all if empty.
        id: Returned with the answer.
        parameters: The parameters of the whole request.
    """

    inputs: dict[str, Array]
    outputs: tuple[Output, ...] = ()
    id: str = ""
    parameters: Parameters = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """Name of the requested outputs; none for all."""
        return tuple([output.name for output in self.outputs]) if self.outputs else ()

    @property
    def timeout(self) -> float:
        """The request's own time limit in seconds, sent in microseconds; endless without one.

        Raises:
            BadRequest: It is not a positive number.
        """
        if (said := self.parameters.get("timeout")) is None:
            return float("inf")
        try:
            microseconds = int(said)
        except (TypeError, ValueError, OverflowError):
            microseconds = -1
        if microseconds < 0 or isinstance(said, bool):
            raise BadRequest(f"timeout is {quoted(said)}; expected microseconds, 1 or more")
        return microseconds / 1e6 if microseconds else float("inf")


def quoted(value: object) -> str:
    """Return a client's value in a form that is safe in messages."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
