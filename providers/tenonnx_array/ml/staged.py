"""Operators in two stages: attributes are laid out when a node is bound, inputs when it runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tenonnx.operators import Kernel, Namespace, OperatorTable

# The fewest and the most inputs of operators that may have other than one.
INPUT_COUNTS = {"ArrayFeatureExtractor": (2, 2), "FeatureVectorizer": (1, math.inf)}


@dataclass(frozen=True)
class StagedKernel(Kernel):
    """A kernel whose call takes the attributes alone and returns the function of the inputs."""

    def bind(
        self, xp: Namespace, attributes: Mapping[str, Any], outputs: int
    ) -> Callable[..., Any]:
        """Return a callable of the inputs; trees, vectors and vocabularies are built here."""
        function: Callable[..., Any] = Kernel.bind(self, xp, attributes, outputs)()
        return function

    def arity(self) -> tuple[int, float]:
        """Return how many inputs there are at least, and at most; the call takes none itself."""
        return INPUT_COUNTS.get(self.op_type, (1, 1))

    def operands(self) -> tuple[str, ...]:
        """Return the names of the inputs whose shapes are declared."""
        return ("X", "Y") if self.op_type == "ArrayFeatureExtractor" else ("X",)


# The shapes of rows, of which a vector is one.
ROWS_OPERAND = "X: N F | F"

# The shapes of anything that has features.
FEATURES = "X: N ..."


class StagedTable(OperatorTable):
    """Operators declared as ``factory(xp, *, attributes) -> function of the inputs``.

    A model of this domain keeps its weights in attributes, as tuples of up to millions of
    numbers: turning those into arrays belongs to the binding of a node, not to its runs.
    """

    def _add(self, kernel: Kernel) -> None:
        super()._add(StagedKernel(**vars(kernel)))
