"""Models of one node whose operands have wrong shapes: each is refused, and the operand is named.

``invalid_models.json`` has what onnxruntime 1.32 refuses of mutated rows of ``cases_*.py``.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cases import CASES, model_of

import tenonnx
from mutations import OF_LIBRARIES, mutated

ROWS = {case.id: case for case in CASES}
CORPUS: list[tuple[str, int, str]] = json.loads(
    Path(__file__).with_name("invalid_models.json").read_text()
)


def refusal(row: str, place: int, mutation: str, *, declared: bool) -> str:
    """Return the message that refuses a mutated row, whose shapes the model has or not."""
    case = ROWS[row]
    model = model_of(case)
    feeds = {f"x{i}": np.asarray(x) for i, x in enumerate(case.inputs) if x is not None}
    feeds[f"x{place}"] = mutated(feeds[f"x{place}"], mutation)
    for value in model.graph.input:
        shape = value.type.tensor_type.shape
        shape.Clear()
        for size in feeds[value.name].shape if declared else ():
            shape.dim.add().dim_value = size
        if not declared:
            value.type.tensor_type.ClearField("shape")
    for value in model.graph.output:
        value.type.tensor_type.ClearField("shape")
    with pytest.raises(tenonnx.errors.TenonnxError) as caught:
        tenonnx.InferenceSession(model, providers=["cpu"]).run(None, feeds)
    return str(caught.value)


def test_the_corpus_is_large() -> None:
    assert len(CORPUS) > 300
    assert len({row for row, _, _ in CORPUS}) > 60


@pytest.mark.parametrize("declared", [True, False], ids=["at-load", "at-run"])
def test_the_operand_is_named(declared: bool) -> None:
    wrong = []
    for row, place, mutation in CORPUS:
        said = refusal(row, place, mutation, declared=declared)
        op = ROWS[row].op
        names = {f"x{i}" for i in range(len(ROWS[row].inputs))}
        kernel = next(k for k in _kernels() if k.op_type == op)
        named = any(re.search(rf"\b{name}\b", said) for name in (*names, *kernel.operands()))
        if not named or OF_LIBRARIES.search(said):
            wrong.append((row, place, mutation, said))
    assert not wrong


def _kernels() -> Any:
    from tenonnx_array import TABLE

    return TABLE
