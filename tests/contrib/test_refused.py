"""Operators of com.microsoft whose operands have wrong shapes: each is refused by a name.

``refused.json`` has what onnxruntime 1.32 refuses of mutated rows; the last of each entry tells
whether a model without shapes is refused as well: nodes that become several of ai.onnx's are
looked at only as far as shapes are known when the model is loaded.
"""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import numpy as np
import pytest
from rows import feeds_of, model_of, recorded

import tenonnx
from mutations import OF_LIBRARIES, mutated
from tenonnx import OperatorTable
from tenonnx_contrib.listing import LISTING

ROWS = {row.id: row for row in recorded(Path(__file__).parent)}
CORPUS: list[tuple[str, int, str, bool]] = json.loads(
    Path(__file__).with_name("refused.json").read_text()
)
TABLE = OperatorTable.listed("tenonnx_contrib", LISTING, "com.microsoft")
KERNELS = {kernel.op_type: kernel for kernel in TABLE}


def refusal(name: str, place: int, mutation: str, *, declared: bool) -> str | None:
    """Return the message that refuses a mutated row, whose shapes the model has or not."""
    row = ROWS[name]
    inputs = list(row.inputs)
    inputs[place] = mutated(np.asarray(inputs[place]), mutation)
    changed = dataclasses.replace(row, inputs=inputs)
    proto = model_of(changed)
    for value in () if declared else proto.graph.input:
        value.type.tensor_type.ClearField("shape")
    try:
        tenonnx.InferenceSession(proto, providers=["cpu"]).run(None, feeds_of(changed))
    except tenonnx.TenonnxError as error:
        return str(error)
    return None


@pytest.mark.parametrize("declared", [True, False], ids=["at-load", "at-run"])
def test_the_operand_is_named(declared: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENONNX_JIT", "0")
    wrong = []
    for row, place, mutation, at_run in CORPUS:
        if not (declared or at_run):
            continue
        said = refusal(row, place, mutation, declared=declared)
        op = ROWS[row].op
        names = (*(f"x{i}" for i in range(len(ROWS[row].inputs))), *KERNELS[op].operands())
        named = said and any(re.search(rf"\b{name}\b", said) for name in names)
        if not said or not named or OF_LIBRARIES.search(said):
            wrong.append((row, place, mutation, said))
    assert not wrong


def test_the_corpus_is_large() -> None:
    assert len(CORPUS) > 400
    assert len({ROWS[row].op for row, *_ in CORPUS}) > 60
    assert sum(at_run for *_, at_run in CORPUS) > 400
