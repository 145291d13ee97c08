"""Tensors in JSON: the values that json and numpy read, in time that the body's size bounds."""

from __future__ import annotations

import json
import time
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tenonnx_serve import json_tensors
from tenonnx_serve.datatypes import DTYPES
from tenonnx_serve.errors import BadRequest
from tenonnx_serve.tensors import TensorSpec

MIB = 1 << 20


def read(text: bytes, datatype: str, shape: tuple[int, ...]) -> Any:
    spec = TensorSpec("x", datatype, shape, DTYPES[datatype])
    (tensor,) = json_tensors.parsed(b'{"inputs": [{"name": "x", "data": %b}]}' % text).inputs
    return json_tensors.array_of(spec, shape, tensor.data)


NUMBERS = st.sampled_from([name for name in DTYPES if name not in ("BYTES", "BF16")])
SHAPES = hnp.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=5)
ARRAYS = st.tuples(NUMBERS, SHAPES).flatmap(
    lambda two: hnp.arrays(DTYPES[two[0]], two[1]).map(lambda array: (two[0], array))
)


@given(ARRAYS, st.booleans(), st.sampled_from([None, 1]))
def test_numbers_are_those_that_were_written(
    given: tuple[str, Any], flat: bool, indent: int | None
) -> None:
    datatype, array = given
    text = json.dumps((array.ravel() if flat else array).tolist(), indent=indent).encode()
    found = read(text, datatype, array.shape)
    assert found.dtype == array.dtype
    np.testing.assert_array_equal(found, array)


@given(st.lists(st.lists(st.text(max_size=5), min_size=2, max_size=2), max_size=4))
def test_strings_are_those_that_were_written(words: list[list[str]]) -> None:
    text = json.dumps(words).encode()
    try:
        json.dumps(words, ensure_ascii=False).encode()
    except UnicodeEncodeError:  # half of a surrogate pair
        with pytest.raises(BadRequest):
            read(text, "BYTES", (len(words), 2))
        return
    assert read(text, "BYTES", (len(words), 2)).tolist() == words


def test_many_elements_are_read_in_pieces() -> None:
    array = np.random.default_rng(0).standard_normal(50_000).astype(np.float32)
    text = json.dumps(array.tolist()).encode()
    assert len(text) > 2 * json_tensors.PIECE_BYTES
    np.testing.assert_array_equal(read(text, "FP32", array.shape), array)
    written = b"".join(json_tensors.text_of(array))
    np.testing.assert_array_equal(np.array(json.loads(written), np.float32), array)


@pytest.mark.parametrize(
    ("text", "datatype", "words"),
    [
        (b"[1, 2, 3]", "FP32", "expected a list of 2 elements"),
        (b"[]", "FP32", "expected a list of 2 elements"),
        (b'"ab"', "FP32", "expected a list of 2 elements"),
        (b'"ab"', "BYTES", "expected a list of 2 elements"),
        (b'["a", "b", "c"]', "BYTES", "expected a list of 2 elements"),
        (b"[[1], []]", "FP32", "not FP32"),
        (b"[[], []]", "FP32", "not FP32"),
        (b'["1", "2"]', "FP32", "not FP32"),
        (b"[true, 1]", "FP32", "not FP32"),
        (b"[1.5, 1]", "INT32", "not INT32"),
        (b"[300, 1]", "UINT8", "not UINT8"),
        (b"[-1, 1]", "UINT64", "not UINT64"),
        (b"[2, 1]", "BOOL", "not BOOL"),
        (b"[1, 2]", "BYTES", "not BYTES"),
        (b'[["a"], "b"]', "BYTES", "not BYTES"),
    ],
)
def test_what_is_refused(text: bytes, datatype: str, words: str) -> None:
    with pytest.raises(BadRequest, match=words):
        read(text, datatype, (2,))


def test_nan_and_infinities() -> None:
    found = read(b'["NaN", "-Infinity","Infinity", 1]', "FP32", (4,))
    np.testing.assert_array_equal(found, [np.nan, -np.inf, np.inf, 1])
    np.testing.assert_array_equal(read(b'["NaN", "-Infinity"]', "FP32", (2,)), [np.nan, -np.inf])
    for array in (found, found.astype(ml_dtypes.bfloat16)):
        assert json.loads(b"".join(json_tensors.text_of(array))) == [None, None, None, 1]
    for text in (b"[NaN, 1]", b"[1, -Infinity]", b'[NaN, "a, NaN"]'):
        with pytest.raises(BadRequest, match=r"not JSON: .*; NaN and infinities are strings"):
            read(text, "FP32", (2,))


@pytest.mark.parametrize(
    "body",
    [
        b'{"inputs": [{"name": "x", "data": [' + b"[]," * (5 * MIB) + b"[]]}]}",
        b'{"parameters": {"a": [' + b"[]," * (5 * MIB) + b"[]]}}",
        b'{"inputs": [{"name": "x", "shape": [' + b"1," * (8 * MIB) + b"1]}]}",
        b'{"other": ' + b"[" * (8 * MIB) + b"]" * (8 * MIB) + b"}",
        b'{"id": "' + b"NaN" * (5 * MIB) + b"}",
        b"[" * (16 * MIB),
    ],
)
def test_sixteen_mebibytes_cost_little(body: bytes) -> None:
    def read_all() -> None:
        found = json_tensors.parsed(body)
        json_tensors.parameters_of(found.parameters)
        json_tensors.shape_of("x", found.inputs[0].shape)
        read(bytes(found.inputs[0].data), "BYTES", (5 * MIB + 1,))

    began = time.process_time()
    with pytest.raises(BadRequest):
        read_all()
    assert time.process_time() - began < 1
