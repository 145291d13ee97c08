"""The number of replicas on a node: arithmetic of memory and cores."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Node:
    """A machine.

    Attributes:
        cores: How many replicas' threads run at once.
        memory: MiB for replicas and the models that they map.
    """

    cores: float
    memory: float


@dataclass(frozen=True)
class Model:
    """A model as replicas of one node hold it.

    Attributes:
        mapped: MiB that exist once per node.
        private: MiB that each replica has for itself because of the model.
    """

    mapped: float
    private: float


@dataclass(frozen=True)
class Fit:
    """The number of replicas that a node holds.

    Attributes:
        by_memory: As its memory allows.
        by_cores: As its cores allow.
    """

    by_memory: int
    by_cores: int

    @property
    def replicas(self) -> int:
        """The number: the scarcer resource decides."""
        return min(self.by_memory, self.by_cores)


def fit(node: Node, model: Model, *, empty: float, threads: float = 1) -> Fit:
    """Return how many replicas of a model a node holds.

    Args:
        node: The machine.
        model: What they serve.
        empty: MiB of a replica without a model.
        threads: Cores that each replica keeps busy.
    """
    left = max(0.0, node.memory - model.mapped)
    return Fit(math.floor(left / (empty + model.private)), math.floor(node.cores / threads))
