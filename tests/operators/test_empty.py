"""Operators over tensors without elements, which a batch or a list may happen to be."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import pytest
from case import Case
from cases import CASES as ROWS
from cases import feeds_of, model_of
from onnx.reference import ReferenceEvaluator

import tenonnx
from fuzz.examining import INTERNAL, RANDOM
from models import model, node, value

Shape = tuple[int, ...]
CASES: list[tuple[str, str, Shape, dict[str, Any]]] = [
    ("Conv", "0,2,9,9 3,2,3,3", (0, 3, 7, 7), {}),
    ("Conv", "2,0,9,9 3,0,3,3", (2, 3, 7, 7), {}),
    ("Conv", "0,4,9 4,1,3", (0, 4, 7), {"group": 4}),
    ("ConvTranspose", "0,2,16 2,5,3", (0, 5, 18), {}),
    ("ConvTranspose", "1,1,0 1,1,3", (1, 1, 1), {"strides": [2]}),
    ("ConvTranspose", "5,0,16 0,5,1", (5, 5, 16), {}),
    ("DeformConv", "0,2,5,5 3,2,3,3 0,18,3,3", (0, 3, 3, 3), {}),
    ("GridSample", "0,3,4,4 0,2,2,2", (0, 3, 2, 2), {}),
    ("GridSample", "2,3,4,4 2,0,2,2", (2, 3, 0, 2), {}),
    ("MaxPool", "0,3,4,4", (0, 3, 3, 3), {"kernel_shape": [2, 2]}),
    ("AveragePool", "0,3,4,4", (0, 3, 3, 3), {"kernel_shape": [2, 2]}),
    ("GlobalAveragePool", "0,3,4,4", (0, 3, 1, 1), {}),
    ("LSTM", "4,0,3 1,16,3 1,16,4", (4, 1, 0, 4), {"hidden_size": 4}),
    ("GRU", "0,2,3 1,12,3 1,12,4", (0, 1, 2, 4), {"hidden_size": 4}),
    ("LayerNormalization", "0,4 4", (0, 4), {}),
    ("RMSNormalization", "0,4 4", (0, 4), {}),
    ("InstanceNormalization", "0,4,5 4 4", (0, 4, 5), {}),
    ("GroupNormalization", "0,4,5 4 4", (0, 4, 5), {"num_groups": 2}),
    ("BatchNormalization", "0,4,5 4 4 4 4", (0, 4, 5), {}),
    ("LRN", "0,4,5,5", (0, 4, 5, 5), {"size": 3}),
    ("Softmax", "0,4", (0, 4), {}),
    ("Softmax", "4,0", (4, 0), {}),
    ("LogSoftmax", "4,0", (4, 0), {}),
    ("Hardmax", "0,4", (0, 4), {}),
    ("MatMul", "2,0,4 4,3", (2, 0, 3), {}),
    ("MatMul", "2,0 0,3", (2, 3), {}),
    ("MatMul", "0,300 300,3", (0, 3), {}),
    ("MatMul", "0,2,300 300,3", (0, 2, 3), {}),
    ("MatMul", "2,0,600 2,600,3", (2, 0, 3), {}),
    ("MatMul", "4,300 300,0", (4, 0), {}),
    ("Gemm", "0,300 300,3 3", (0, 3), {}),
    ("ConvTranspose", "2,2,16 2,0,3", (2, 0, 18), {}),
    ("DFT", "2,0,3,1", (2, 0, 3, 2), {"axis": 1}),
    ("DFT", "2,0,3,2", (2, 0, 3, 2), {"axis": 1, "inverse": 1}),
    ("Gemm", "0,4 4,3 3", (0, 3), {}),
    ("Einsum", "0,4 4,3", (0, 3), {"equation": "ij,jk->ik"}),
    ("DepthToSpace", "0,4,2,2", (0, 1, 4, 4), {"blocksize": 2}),
    ("LpNormalization", "0,3", (0, 3), {}),
    ("Attention", "0,2,3,4 0,2,3,4 0,2,3,4", (0, 2, 3, 4), {}),
    ("Attention", "0,3,8 0,3,8 0,3,8", (0, 3, 8), {"q_num_heads": 2, "kv_num_heads": 2}),
    ("Attention", "1,0,8 1,3,8 1,3,8", (1, 0, 8), {"q_num_heads": 2, "kv_num_heads": 2}),
    ("RotaryEmbedding", "0,3,8 0,3,2 0,3,2", (0, 3, 8), {"num_heads": 2}),
]


@pytest.mark.parametrize("mode", ["0", "1"])
@pytest.mark.parametrize(("op", "shapes", "expected", "attributes"), CASES, ids=str)
def test_nothing_makes_nothing_or_zeros(
    op: str,
    shapes: str,
    expected: Shape,
    attributes: dict[str, Any],
    mode: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TENONNX_JIT", mode)
    given = [tuple(map(int, shape.split(","))) for shape in shapes.split()]
    feeds = {f"x{n}": np.ones(shape, np.float32) for n, shape in enumerate(given)}
    inputs = [value(name, shape=[None] * array.ndim) for name, array in feeds.items()]
    opset = 19 if op == "DFT" else 23
    proto = model([node(op, " ".join(feeds), "y", **attributes)], inputs, [value("y")], opset=opset)
    (y,) = tenonnx.InferenceSession(proto).run(None, feeds)
    assert y.shape == expected
    assert not y.any()


PLAIN = [row for row in ROWS if not row.name.startswith("nan-")]
FIRST = {(row.domain, row.op): row for row in reversed(PLAIN)}
"""A row of each operator."""

REFUSED = {
    "AffineGrid": "theta has a matrix for each image of the size",
    "Conv": "a kernel has one tap at least",
    "ConvInteger": "a kernel has one tap at least",
    "ConvTranspose": "a kernel has one tap at least",
    "QLinearConv": "a kernel has one tap at least",
    "DeformConv": "a kernel has one tap at least",
    "CenterCropPad": "shape has a number for each axis",
    "DequantizeLinear": "scales are those of the blocks",
    "ReverseSequence": "there is a length for each sequence, at most that of the axis",
    "RNN": "there is a length for each sequence",
    "StringNormalizer": "a matrix has one row",
    "GatherElements": "indices are of no more places than the data",
    "GridSample": "an image without places has none to pick",
    "MaxUnpool": "there is an index for each element",
    "RoiAlign": "there is a batch index for each region, which has four corners",
    "ScatterElements": "indices and updates are of one shape",
    "ScatterND": "there is an update for each index",
    "SoftmaxCrossEntropyLoss": "there is a label for each row",
    "Split": "parts add up to the axis",
}
"""Operators whose inputs fit no more with an axis cut, which numpy's broadcasting in the reference
does not notice, by the reason."""

OTHERWISE = {
    "MaxPool": "the reference takes 0 for the greatest of nothing; here it is the least number",
    "GlobalMaxPool": "the reference takes 0 for the greatest of nothing",
    "LayerNormalization": "the reference takes means of nothing",
    "RNN": "the reference ignores the lengths",
}
"""Operators of which the reference says something else of nothing, by the reason."""

if onnx.__version__.startswith("1.22."):
    OTHERWISE |= {
        "Attention": "the reference makes NaN of queries that see no key",
        "Gather": "the reference gives no indices the shape (0,)",
        "GatherElements": "the reference gives no indices the shape (0,)",
    }
    for op in ("Conv", "QLinearConv"):  # the reference refuses such kernels, too
        del REFUSED[op]


def cut(feeds: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield feeds with each axis of each input cut to length 0, and with it all of its size."""
    arrays = {n: x for n, x in feeds.items() if isinstance(x, np.ndarray) and x.size and x.ndim}
    seen = set()
    for name, array in arrays.items():
        for axis, size in enumerate(array.shape):
            for among in ({name}, set(arrays)):
                axes = {
                    n: tuple(k for k, length in enumerate(arrays[n].shape) if length == size)
                    for n in among - {name}
                } | {name: (axis,)}
                key = tuple(sorted(axes.items()))
                if key not in seen:
                    seen.add(key)
                    yield feeds | {n: _cut(arrays[n], places) for n, places in axes.items()}


def _cut(array: Any, axes: tuple[int, ...]) -> Any:
    keys = (slice(0) if axis in axes else slice(None) for axis in range(array.ndim))
    return array[tuple(keys)].copy()


def _of_any_shape(row: Case) -> onnx.ModelProto:
    proto = model_of(row)
    for given in proto.graph.input:
        for dim in given.type.tensor_type.shape.dim:
            dim.Clear()
    return proto


@pytest.mark.parametrize("mode", ["0", "1"])
@pytest.mark.parametrize("row", FIRST.values(), ids=lambda row: f"{row.domain}{row.op}")
def test_each_axis_cut_to_nothing(row: Case, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As by the reference, which may be a refusal in the operator's terms."""
    monkeypatch.setenv("TENONNX_JIT", mode)
    if RANDOM.search(row.op) or not any(isinstance(x, np.ndarray) for x in row.inputs):
        pytest.skip("nothing to compare")
    proto, feeds = _of_any_shape(row), feeds_of(row)
    try:
        session = tenonnx.InferenceSession(proto)
        reference = ReferenceEvaluator(proto)
    except Exception as error:
        pytest.skip(f"cannot be opened: {type(error).__name__}")
    refused, otherwise = [], []
    for given in cut(feeds):
        expected = _answer_of(reference, given)
        shapes = {name: np.shape(array) for name, array in given.items()}
        found, message = _answer_or_message(session, given)
        if found is None:
            refused += [] if expected is None else [f"{shapes}: {message}"]
        elif expected is not None and not all(map(_is_like, found, expected)):
            otherwise.append(f"{shapes}: {found} for {expected}")
    assert bool(refused) == (row.op in REFUSED), refused
    assert bool(otherwise) == (row.op in OTHERWISE), otherwise


def _answer_or_message(
    session: tenonnx.InferenceSession, given: dict[str, Any]
) -> tuple[list[Any] | None, str]:
    try:
        return session.run(None, given), ""
    except tenonnx.TenonnxError as error:
        message = str(error)
    assert not INTERNAL.search(message), message
    return None, message


def _is_like(one: Any, other: Any) -> bool:
    if one.shape != other.shape:
        return False
    if one.dtype.kind not in "biufc" or one.dtype.itemsize == 1:  # the reference rounds otherwise
        return True
    return bool(np.allclose(one, other, rtol=1e-3, atol=1e-4, equal_nan=True))


def _answer_of(reference: ReferenceEvaluator, given: dict[str, Any]) -> list[Any] | None:
    """Return what the reference says, if it says arrays."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            results = reference.run(None, given)
        except Exception:
            return None
    return results if all(isinstance(each, np.ndarray) for each in results) else None
