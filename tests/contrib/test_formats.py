"""GatherPacked: types of its result, long tables, and what it refuses."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from rows import Row, model_of
from rows_formats import FORMATS

import tenonnx
from tenonnx_contrib.block_formats import FORMATS as OWN

DATA = np.random.default_rng(0).integers(0, 60, (6, 36), np.uint8)


def gathered(data: Any, indices: Any, **given: int) -> Any:
    row = Row("GatherPacked", [data, np.asarray(indices)], {"packed_type": 2, "K": 64} | given)
    session = tenonnx.InferenceSession(model_of(row), providers=["cpu"])
    return session.run(None, {"x0": data, "x1": np.asarray(indices)})[0]


def test_the_formats_are_those_that_are_recorded() -> None:
    assert {number: (form.elements, form.size) for number, form in OWN.items()} == FORMATS


def test_the_result_is_bfloat16_unless_the_node_says_otherwise() -> None:
    wide = gathered(DATA, [5, 1], output_dtype=1)
    found = gathered(DATA, [5, 1])
    assert found.dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(found, wide.astype(ml_dtypes.bfloat16))


def test_no_rows_are_taken_of_none() -> None:
    assert gathered(DATA[:0], np.zeros((0, 2), int)).shape == (0, 2, 64)


@pytest.mark.parametrize(
    ("data", "given", "said"),
    [
        (DATA, {"packed_type": 3}, "packed_type"),
        (DATA, {"K": 48}, "multiple of 32"),
        (DATA, {"K": -64}, "multiple of 32"),
        (DATA, {"K": 96}, r"\(rows, 54\)"),
        (DATA[None], {}, r"\(rows, 36\)"),
        (DATA[:0], {}, "at least one row"),
        (DATA, {"output_dtype": 11}, "output_dtype"),
    ],
)
def test_what_onnxruntime_refuses_is_refused(data: Any, given: dict[str, int], said: str) -> None:
    with pytest.raises(tenonnx.Fail, match=said):
        gathered(data, [0], **given)
