"""The torch provider: the contract, views instead of copies, and torch.compile."""

from __future__ import annotations

import importlib
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import tenonnx
from child import child
from tenonnx.testing import ProviderTests, models

torch: Any = pytest.importorskip("torch", reason="torch is not installed; tox -e frameworks")


class TestTorch(ProviderTests):
    provider = "torch"
    cases = "test_[ac]*"
    frameworks = ("torch",)
    gaps = {  # noqa: RUF012 - the contract's attribute
        "test_attention_4d_causal_fp16_expanded": "torch's Softmax rounds to half precision once",
    }


def test_arrays_and_weights_are_tensors_of_the_same_memory() -> None:
    device = importlib.import_module("tenonnx_torch.provider").TorchDevice("cpu")
    for dtype in ("float32", "float16", "int64", "bool", "uint8"):
        given = np.arange(6).reshape(2, 3).astype(dtype)
        given.flags.writeable = False
        tensor = device.upload(given)
        assert tensor.data_ptr() == given.ctypes.data
        back = device.download(tensor)
        assert np.shares_memory(back, given)
        np.testing.assert_array_equal(back, given)


def test_torch_compile_gives_the_same_with_fewer_steps() -> None:
    model, x = models.mlp(), np.ones((3, 16), np.float32)
    plain = tenonnx.InferenceSession(model, providers=["torch"])
    options = {"compile": True, "backend": "eager"}
    compiled = tenonnx.InferenceSession(model, providers=[("torch", options)])
    assert len(plain.plan.steps) > 1
    assert len(compiled.plan.steps) == 1
    expected, actual = (s.run(None, {"x": x})[0] for s in (plain, compiled))
    np.testing.assert_allclose(actual, expected, rtol=1e-6)


def test_kernels_of_the_operator_table_are_compiled_as_well() -> None:
    body = "a = Sigmoid(x) b = LeakyRelu(a) c = ReduceSum(b) d = Selu(b) y = Mul(d, c)"
    model = models.build(body, "float[n, 8] x", "float[n, 8] y")
    options = {"compile": True, "backend": "eager"}
    session = tenonnx.InferenceSession(model, providers=[("torch", options)])
    assert len(session.plan.steps) == 1
    expected = tenonnx.InferenceSession(model, providers=["cpu"])
    for rows in (4, 2, 4):
        x = np.linspace(-3, 3, 8 * rows, dtype=np.float32).reshape(rows, 8)
        (actual,) = session.run(None, {"x": x})
        np.testing.assert_allclose(actual, expected.run(None, {"x": x})[0], rtol=1e-5)


def test_a_segment_that_looks_at_values_runs_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    model = models.build("a = Unique(x) y = Neg(a)", "float[n] x", "float[m] y")
    options = {"compile": True, "backend": "eager"}
    session = tenonnx.InferenceSession(model, providers=[("torch", options)])
    (y,) = session.run(None, {"x": np.array([2, 1, 2], np.float32)})
    assert y.tolist() == [-1, -2]
    assert any("torch.compile leaves a segment as it is" in said for said in caplog.messages)


def test_a_device_that_is_not_there_is_said_so() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(
        tenonnx.EPFail, match=r"torch cannot use device='cuda:0'.*\nHint: check torch\.cuda"
    ):
        tenonnx.InferenceSession(models.mlp(), providers=[("torch", {"device": "cuda:0"})])


COMPILES = """
import json, os
import numpy as np, tenonnx
import tenonnx_torch.provider as own

compiled, serialized = [], own.TorchExecutionProvider.serialized
def counting(self, function, types):
    compiled.append(1)
    return serialized(self, function, types)
own.TorchExecutionProvider.serialized = counting
providers = [("torch", {"compile": True})]
session = tenonnx.InferenceSession(os.environ["MODEL"], providers=providers)
found = session.run(None, {"x": np.arange(32, dtype=np.float32).reshape(2, 16)})[0]
print(json.dumps([len(compiled), session.load_times.uncached, found.tolist()]))
"""


@pytest.mark.skipif(shutil.which("g++") is None, reason="inductor needs a C++ compiler")
def test_compiled_functions_are_kept_for_later_processes(tmp_path: Path) -> None:
    onnx.save(models.mlp(), tmp_path / "model.onnx")
    given = {"MODEL": tmp_path / "model.onnx", "TENONNX_CACHE_DIR": tmp_path / "cache"}
    number, uncached, first = child(COMPILES, **given)
    assert (number, uncached) == (1, "")
    assert child(COMPILES, **given) == [0, "", first]
    x = np.arange(32, dtype=np.float32).reshape(2, 16)
    expected = tenonnx.InferenceSession(models.mlp(), providers=["cpu"]).run(None, {"x": x})[0]
    np.testing.assert_allclose(first, expected, rtol=1e-5)


def test_without_torchs_packages_functions_are_compiled_anew(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    inductor = importlib.import_module("torch._inductor")
    monkeypatch.delattr(inductor, "aoti_compile_and_package")
    own = importlib.import_module("tenonnx_torch.provider").TorchExecutionProvider
    monkeypatch.setattr(own, "jit", lambda _, function: function)
    onnx.save(models.mlp(), tmp_path / "model.onnx")
    monkeypatch.setenv("TENONNX_CACHE_DIR", str(tmp_path / "cache"))
    session = tenonnx.InferenceSession(
        tmp_path / "model.onnx", providers=[("torch", {"compile": True})]
    )
    x = np.arange(32, dtype=np.float32).reshape(2, 16)
    (found,) = session.run(None, {"x": x})
    (expected,) = tenonnx.InferenceSession(models.mlp(), providers=["cpu"]).run(None, {"x": x})
    np.testing.assert_allclose(found, expected, rtol=1e-5)
