"""Declared shapes of operands."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import pytest

from tenonnx.graph.operand_shapes import Requirement, parsed
from tenonnx.graph.shape_checks import deciding
from tenonnx_array import TABLE

KERNELS = (
    TABLE.find(schema.domain, schema.name, schema.since_version)
    for schema in onnx.defs.get_all_schemas()
)
DECLARED = sorted({kernel.shapes for kernel in KERNELS if kernel is not None and kernel.shapes})


def given(random: np.random.Generator, count: int) -> Iterator[list[tuple[int, ...] | None]]:
    for _ in range(count):
        ranks = np.minimum(random.integers(0, 4) + random.integers(0, 2, 8), 4)
        shapes = [tuple(random.integers(1, 3, rank).tolist()) for rank in ranks]
        yield [shape if random.random() < 0.9 else None for shape in shapes]


def answer(required: Requirement, shapes: Any) -> bool | None:
    try:
        return required.decide(shapes)
    except ValueError:
        return None


@pytest.mark.parametrize("text", DECLARED)
def test_shapes_of_one_key_fit_alike(text: str) -> None:
    """So a shape that fits need not be looked at again where other axes differ."""
    declared = parsed(text)
    operands = tuple(dict.fromkeys(operand.name for operand in declared.operands))
    random = np.random.default_rng(1)
    others = sorted(declared.names - set(operands))
    required = Requirement(
        text, operands, operands, {n: int(random.integers(1, 3)) for n in others}
    )
    answers: dict[Any, bool | None] = {}
    for shapes in given(random, 150):
        decisive = [(n, *each) for n, each in enumerate(required.decisive()[: len(shapes)])]
        key = tuple(deciding(shapes, decisive))
        wanted = answers.setdefault(key, found := answer(required, shapes))
        assert found == wanted, shapes
