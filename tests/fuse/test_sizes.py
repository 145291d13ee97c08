"""The sizes that follow for results are those that runs have."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusing import parse
from tenonnx.graph.sizes import sizes_of


def found(text: str, **weights: Any) -> tuple[int | None, ...]:
    model = ir.from_proto(parse(text, **weights))
    return sizes_of(model.graph.outputs[0])


@given(st.lists(st.integers(1, 6), min_size=1, max_size=4), st.data())
def test_reshapes(shape: list[int], data: st.DataObject) -> None:
    made = data.draw(st.permutations(shape))
    told = [
        0 if axis < len(shape) and size == shape[axis] and data.draw(st.booleans()) else size
        for axis, size in enumerate(made)
    ]
    if data.draw(st.booleans()):
        told[data.draw(st.integers(0, len(told) - 1))] = -1
    text = f"(float[{','.join(map(str, shape))}] x) => (float[?] y) {{ y = Reshape(x, s) }}"
    assert found(text, s=np.array(told, np.int64)) == tuple(made)


@pytest.mark.parametrize(
    ("shape", "told", "attribute", "expected"),
    [
        ("a,6", [0, -1], "", (None, None)),
        ("a,6", [0, 2, 3], "", (None, 2, 3)),
        ("4,0", [0, -1], "", (4, None)),
        ("4,0", [0, 4], "<allowzero=1>", (None, 4)),
        ("4,3", [5, -1], "", (5, None)),
        ("4,3", [2, 2, 0], "", (2, 2, None)),
    ],
)
def test_reshapes_that_say_less(
    shape: str, told: list[int], attribute: str, expected: tuple[int | None, ...]
) -> None:
    text = f"(float[{shape}] x) => (float[?] y) {{ y = Reshape{attribute}(x, s) }}"
    assert found(text, s=np.array(told, np.int64)) == expected


def test_attention_of_heads_apart() -> None:
    text = """(float[2,4,a,8] q, float[2,2,7,8] k, float[2,2,7,5] v) => (float[?] y) {
        y = Attention(q, k, v) }"""
    assert found(text) == (2, 4, None, 5)
