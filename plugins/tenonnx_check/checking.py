"""Running each node of a model alone, on a reference's inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tenonnx_check.outcome import Kind, Outcome
from tenonnx_check.parts import Whole


@dataclass(frozen=True)
class Failure:
    """A node that fails alone.

    Attributes:
        number: Its position among the model's nodes.
        outcome: How it fails.
    """

    number: int
    outcome: Outcome


# Runs nodes by their numbers, apart or as they are connected.
Ask = Callable[[Sequence[int], bool], Outcome]


def failures(
    whole: Whole, ask: Ask, numbers: Sequence[int], show: Callable[[int], None]
) -> Iterator[Failure]:
    """Yield the nodes that fail alone, in order.

    Many nodes run in one model in which they are not connected; those of one that raises or
    crashes are halved.

    Args:
        whole: The model.
        ask: Runs some of its nodes.
        numbers: The nodes to look at.
        show: Called with the number of nodes that are done.
    """
    waiting = [list(numbers)]
    while waiting:
        some = waiting.pop()
        outcome = ask(some, len(some) > 1)
        if outcome.kind is Kind.FINE:
            show(some[-1] + 1)
        elif len(some) == 1:
            yield Failure(some[0], outcome)
            show(some[0] + 1)
        elif outcome.kind is Kind.DIFFERS:
            differing = set(outcome.outputs)
            for number in some:
                names = {value.name for value in whole.nodes[number].outputs}
                if names & differing:
                    alone = ask([number], False)
                    # Alone it may be computed otherwise: it differs beside the others all the same.
                    yield Failure(number, alone if alone.kind is not Kind.FINE else outcome)
            show(some[-1] + 1)
        else:
            middle = len(some) // 2
            waiting += [some[middle:], some[:middle]]


def described_inputs(whole: Whole, number: int, values: dict[str, Any]) -> list[tuple[str, ...]]:
    """Return name, dtype, shape and range of each input of a node, as rows of a table."""
    import numpy as np

    from tenonnx.graph import array_of
    from tenonnx.planning.differences import range_of

    rows: list[tuple[str, ...]] = []
    for value in whole.nodes[number].inputs:
        if value is None:
            continue
        tensor = value.const_value
        found = values.get(value.name or "") if tensor is None else array_of(tensor)
        if not isinstance(found, np.ndarray):
            rows.append((value.name or "", type(found).__name__, "", ""))
            continue
        span = range_of(found)
        rows.append((value.name or "", str(found.dtype), str(list(found.shape)), span))
    return rows
