"""Large JSON: a process reads it, with the result and the errors of reading it here."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from servers import HEADER
from tenonnx import InferenceSession
from tenonnx_serve import config, json_process, rest_infer
from tenonnx_serve.errors import BadRequest, RunFailed, TimedOut
from tenonnx_serve.model import Model
from tenonnx_serve.requests import Output, Request
from tenonnx_serve.settings import Batching, Limits
from tenonnx_serve.shared_memory import Regions

TEXT = """g (float[n] x, float[2] z, string[k] words, bfloat16[k] b)
    => (float[n] y, float[2] v, string[k] w, bfloat16[k] c)
    { y = Identity(x)  v = Identity(z)  w = Identity(words)  c = Identity(b) }"""

X = np.arange(1 << 20, dtype=np.float32)
WORDS = ["", "\u00e4", '"]', "a,b"] * 5000


@pytest.fixture(scope="module")
def model() -> Model:
    import onnx

    session = InferenceSession(onnx.parser.parse_model(f"{HEADER} {TEXT}"))
    return Model("model", "1", session, config.empty(), Batching())


def body(array: Any = X, **more: Any) -> tuple[bytes, bytes]:
    """Return a request of JSON and of a binary tensor, and the length of the JSON."""
    tensors: dict[str, Any] = {
        "x": {"datatype": "FP32", "shape": array.shape, "data": array.tolist()},
        "z": {"datatype": "FP32", "shape": [2], "parameters": {"binary_data_size": 8}},
        "words": {"datatype": "BYTES", "shape": [len(WORDS)], "data": WORDS},
        "b": {"datatype": "BF16", "shape": [len(WORDS)], "data": [0.5] * len(WORDS)},
    }
    for name, changed in more.items():
        tensors[name] = tensors.get(name, {}) | changed
    outputs = [{"name": "v", "parameters": {"binary_data": True}}, {"name": "y"}]
    inputs = [{"name": name, **tensor} for name, tensor in tensors.items()]
    said = {"id": "7", "parameters": {"timeout": 5}, "inputs": inputs, "outputs": outputs}
    text = json.dumps(said).encode()
    return text + np.float32([3, 4]).tobytes(), b"%d" % len(text)


def decoded(model: Model, said: tuple[bytes, bytes], **limits: Any) -> Request:
    return rest_infer.decode(model, *said, Limits(**limits), Regions())


def test_a_process_reads_what_would_be_read_here(model: Model) -> None:
    given = body()
    assert len(given[0]) > json_process.MIN_BYTES
    began = time.thread_time()
    found = decoded(model, given)
    seconds = time.thread_time() - began
    assert (found.id, found.parameters) == ("7", {"timeout": 5})
    assert found.outputs == (Output("v", {"binary_data": True}), Output("y"))
    np.testing.assert_array_equal(found.inputs["x"], X)
    np.testing.assert_array_equal(found.inputs["z"], [3, 4])
    assert found.inputs["words"].tolist() == WORDS
    assert found.inputs["b"].dtype == "bfloat16"
    np.testing.assert_array_equal(found.inputs["b"].astype(float), 0.5)
    began = time.thread_time()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_process, "MIN_BYTES", 1 << 30)
        here = decoded(model, given)
    assert seconds < (time.thread_time() - began) / 2
    for name, array in here.inputs.items():
        assert array.dtype == found.inputs[name].dtype
        np.testing.assert_array_equal(array, found.inputs[name])


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"x": {"data": [1.0] * 9 + ["a"]}}, "input 'x' has elements that are not FP32"),
        ({"x": {"shape": [9]}}, "input 'x': expected a list of 9 elements"),
        ({"x": {"shape": {}}}, "input 'x' has a shape that are"),
        ({"x": {"datatype": "FP99"}}, "has datatype 'FP99'; expected FP32"),
        ({"other": {"datatype": "FP32", "shape": [0], "data": []}}, "has no input 'other'"),
        ({"z": {"parameters": {"binary_data_size": 9}}}, "where 8 bytes are left"),
        ({"z": {"parameters": {"binary_data_size": True}}}, "where 8 bytes are left"),
        ({"z": {"parameters": {"shared_memory_region": "r"}}}, "shared_memory_byte_size is None"),
        ({"z": {"parameters": {"binary_data_size": 7}}}, "has 7 bytes; expected 8"),
    ],
)
def test_what_is_refused(
    model: Model, changed: dict[str, Any], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def here(said: bytes, length: int, _: float) -> tuple[bytes, int]:
        head, pieces = json_process.converted(said, length)
        return b"".join([head, *pieces]), len(head)

    monkeypatch.setattr(json_process, "as_binary", here)
    monkeypatch.setattr(json_process, "MIN_BYTES", 1)
    with pytest.raises(BadRequest, match=words):
        decoded(model, body(X[:10], **changed))


def test_a_process_that_fails_or_takes_too_long(model: Model, tmp_path: Path) -> None:
    given = body()
    with pytest.raises(BadRequest, match="not JSON"):
        decoded(model, (b" " * (5 << 20), b"%d" % (5 << 20)))
    with pytest.raises(TimedOut, match="longer than"):
        decoded(model, given, seconds=0.01)
    failing = tmp_path / "python"
    failing.write_text("#!/bin/sh\nexit 1\n")
    failing.chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.executable", str(failing))
        with pytest.raises(RunFailed, match="status 1"):
            decoded(model, given)
