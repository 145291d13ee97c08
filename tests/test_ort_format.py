"""onnxruntime's ``.ort`` files: read in place, right answers, and no crash on damaged ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tenonnx

HERE = Path(__file__).parent
FILES = sorted((HERE / "ort_files").glob("*.ort"))
NESTED = [path for path in FILES if path.stem.startswith("nested")]
EXPORTS = [path for path in FILES if path not in NESTED]
X = np.arange(8, dtype=np.float32).reshape(2, 4)


@pytest.mark.parametrize("path", EXPORTS, ids=lambda path: path.stem)
def test_converted_exports_give_the_frameworks_answers(path: Path) -> None:
    arrays = np.load(HERE / "exports" / f"{path.stem.rsplit('-', 1)[0]}.npz")
    session = tenonnx.InferenceSession(path)
    feeds = {arg.name: arrays[f"in:{arg.name}"] for arg in session.get_inputs()}
    expected = [arrays[name] for name in arrays.files if name.startswith("out:")]
    for actual, answer in zip(session.run(None, feeds), expected, strict=False):
        np.testing.assert_allclose(actual, answer.reshape(actual.shape), rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("path", NESTED, ids=lambda path: path.stem)
def test_subgraphs_read_outer_values_and_weights(path: Path) -> None:
    session = tenonnx.InferenceSession(path)
    feeds = {"n": np.array(2), "ids": np.array([3, 1]), "x": X}
    (looped,) = session.run(None, {**feeds, "cond": np.array(True)})
    (gathered,) = session.run(None, {**feeds, "cond": np.array(False)})
    np.testing.assert_array_equal(looped, np.concatenate([((X + X) * 2 + X) * 2, X]))
    table = np.arange(64, dtype=np.float32).reshape(16, 4)
    np.testing.assert_array_equal(gathered, np.concatenate([table[[3, 1]], X]))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_weights_are_views_of_the_mapped_file(path: Path) -> None:
    options = tenonnx.SessionOptions(
        graph_optimization_level=tenonnx.GraphOptimizationLevel.ORT_DISABLE_ALL
    )
    session = tenonnx.InferenceSession(path, options)
    mapping = tenonnx.default_registry().map(path)
    file = np.frombuffer(mapping.buffer, np.uint8)
    assert session.weights
    filled = [weight.array for weight in session.weights if weight.nbytes]
    assert all(np.shares_memory(array, file) for array in filled)


def test_bytes_are_read_as_well_as_paths() -> None:
    (path, *_) = NESTED
    session = tenonnx.InferenceSession(path.read_bytes())
    assert [arg.name for arg in session.get_inputs()] == ["cond", "n", "ids", "x"]
    assert session.get_inputs()[3].shape == [2, 4]


@settings(max_examples=150, deadline=None)
@given(length=st.integers(8, 20_000))
def test_truncated_files_are_refused_or_right(length: int) -> None:
    data = NESTED[0].read_bytes()
    if length >= len(data):
        length = len(data) - 1
    open_or_refuse(data[:length])


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_damaged_files_are_refused_or_load(data: st.DataObject) -> None:
    content = bytearray(NESTED[0].read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(8, len(content) - 1))
        content[place] = data.draw(st.integers(0, 255))
    open_or_refuse(bytes(content))


def open_or_refuse(content: bytes) -> None:
    try:
        tenonnx.InferenceSession(content)
    except tenonnx.TenonnxError:
        return
