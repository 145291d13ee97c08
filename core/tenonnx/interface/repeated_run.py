"""A binding's run once more, with other arrays for some inputs: all else holds as it was checked.

Checking inputs and choosing buffers takes a microsecond for each, and a decoder has hundreds that
stay where they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tenonnx.planning.bound import ArrayExtents

if TYPE_CHECKING:
    from tenonnx.interface.ort_value import OrtValue
    from tenonnx.interface.signature import Signature
    from tenonnx.planning.plan import Plan

NDArray = np.ndarray[Any, np.dtype[Any]]


class RepeatedRun:
    """A run of a plan on arrays of the host.

    Args:
        plan: The plan.
        signature: The model's inputs.
        inputs: In the graph's order, checked.
        buffers: A host array for every output, ``None`` for those to be made.
        values: The bound values and the arrays that they had.
    """

    def __init__(
        self,
        plan: Plan,
        signature: Signature,
        inputs: list[Any],
        buffers: Sequence[Any],
        values: Sequence[tuple[OrtValue, Any]],
    ) -> None:
        self.plan, self._inputs, self._buffers, self._values = plan, inputs, buffers, values
        self._checks = {check.arg.name: (n, check) for n, check in enumerate(signature.checks)}
        self._given = plan.chosen(inputs, buffers)
        self._memory = ArrayExtents(buffer for buffer in buffers if buffer is not None)

    def first(self) -> list[Any]:
        """Return the outputs, those with buffers in theirs."""
        return self.plan.run_chosen(self._inputs, self._given, self._buffers)

    def run_with(self, others: Mapping[str, Any]) -> list[Any] | None:
        """Return the outputs with other inputs; ``None`` if more has changed than those.

        Raises:
            InvalidArgument: One of them does not fit.
        """
        for value, array in self._values:
            if value.value is not array:
                return None
        for name, given in others.items():
            place, check = self._checks[name]
            array = check(given)
            if type(array) is not np.ndarray or self._memory.meets(array):
                return None
            self._inputs[place] = array
        return self.first()
