"""The code of a plan that was kept, rewritten line by line: none moves, as errors go by lines."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from tenonnx.interruption import check
from tenonnx.planning.bound import direct_outputs
from tenonnx.planning.plan import Code
from tenonnx.planning.writing import writer
from tenonnx.provider import Step
from tenonnx.records import NamedTuple

if TYPE_CHECKING:
    from tenonnx.planning.lower import Lowering

T = TypeVar("T")

STEP = r"^(\s+\w+ = )(k\d+)\((.*)\)$"
"""A line that calls a step; a pattern that few processes want compiled."""
LOOP = r"^(\s+for .+? in )(.+):$"
HEADER = r"^def run\((.*)\):$"


class Write(NamedTuple):
    """An output that a step can write into a buffer.

    Attributes:
        position: Where it stands among the outputs.
        dtype: What its elements are; ``None`` if the model does not say it.
        owned: Positions of the inputs that the step alone reads.
        step: What the code calls the step.
        place: Where it stands among the step's outputs.
        several: How many outputs those are; 0 for one that is no tuple.
    """

    position: int
    dtype: np.dtype[Any] | None
    owned: frozenset[int]
    step: str
    place: int
    several: int


def writes_of(lowering: Lowering, code: Code) -> tuple[Write, ...]:
    """Returns the outputs of a plan that its steps can write into buffers."""
    direct = {output.value: output for output in direct_outputs(lowering)}
    lines = code.source.split("\n") if direct else []
    found = {}
    for number, step in code.origin.items() if direct else ():
        if isinstance(step, Step) and (called := re.match(STEP, lines[number - 1])):
            for place, value in enumerate(step.outputs):
                if (output := direct.get(value)) is not None:
                    count = len(step.outputs) if step.multiple else 0
                    facts = output.position, output.dtype, output.owned
                    found[output.position] = Write(*facts, called[2], place, count)
    return tuple(found[position] for position in sorted(found))


def writing(
    source: str, namespace: Mapping[str, Any], writes: Sequence[Write]
) -> tuple[str, dict[str, Any]]:
    """Returns code that takes a buffer for each of some outputs, and what its names stand for."""
    targets: dict[str, list[str]] = {}
    for number, write in enumerate(writes):
        into = targets.setdefault(write.step, ["None"] * max(write.several, 1))
        into[write.place] = f"b{number}"
    tuples = {write.step: bool(write.several) for write in writes}
    names = dict(namespace)
    for step, is_tuple in tuples.items():
        names[f"w{step}"] = writer(namespace[step], multiple=is_tuple)

    def rewritten(line: str) -> str:
        if (header := re.match(HEADER, line)) is not None:
            buffers = [f"b{number}" for number in range(len(writes))]
            return f"def run({', '.join(filter(None, [header[1], *buffers]))}):"
        if (called := re.match(STEP, line)) is None or called[2] not in targets:
            return line
        start, step, arguments = called.groups()
        into = ", ".join(targets[step])
        return f"{start}w{step}({f'({into},)' if tuples[step] else into}, {arguments})"

    return _each(source, rewritten), names


def checking(source: str, namespace: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Returns code that looks after every step and in every iteration whether it is to stop.

    What replays several steps as one calls them one after the other.
    """

    def rewritten(line: str) -> str:
        if re.match(STEP, line):
            return f"{line}; check()"
        return re.sub(LOOP, r"\1looked(\2):", line)

    calls = {name: _one_by_one(called) for name, called in namespace.items()}
    return _each(source, rewritten), {**calls, "check": check, "looked": looked}


def looked(items: Iterable[T]) -> Iterator[T]:
    """Yields items, having looked each time whether to stop."""
    for item in items:
        check()
        yield item


def _one_by_one(called: Any) -> Any:
    make = getattr(getattr(called, "__self__", None), "__checked__", None)
    return called if make is None else make()


def _each(source: str, rewritten: Callable[[str], str]) -> str:
    return "\n".join(map(rewritten, source.split("\n")))
