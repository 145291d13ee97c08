"""onnx's own runner, with a comparison that sees everything and a choice of how models load."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx.backend.test import BackendTest

import tenonnx
from tenonnx.backend import TenonnxBackend, TenonnxBackendRep

BFLOAT16_RTOL = 2**-6


def as_proto(model: onnx.ModelProto, folder: Path) -> onnx.ModelProto:
    assert folder.is_dir()
    return model


def as_bytes(model: onnx.ModelProto, folder: Path) -> bytes:
    assert folder.is_dir()
    return model.SerializeToString()


def as_path(model: onnx.ModelProto, folder: Path) -> Path:
    path = folder / "case.onnx"
    path.write_bytes(model.SerializeToString())
    return path


FORMS: dict[str, Callable[[onnx.ModelProto, Path], Any]] = {
    "proto": as_proto,
    "bytes": as_bytes,
    "path": as_path,
}


class CarefulRep(TenonnxBackendRep):
    """Fails a run that writes into its inputs."""

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        before = copy.deepcopy(inputs)
        outputs = super().run(inputs, **kwargs)
        assert_similar(before, inputs, 0, 0)
        return outputs


class ChosenBackend(TenonnxBackend):
    """Takes the form of the model, the optimisation level and a folder as keyword arguments."""

    @classmethod
    def prepare(
        cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any
    ) -> TenonnxBackendRep:
        options = tenonnx.SessionOptions(graph_optimization_level=kwargs["level"])
        source = FORMS[kwargs["form"]](model, kwargs["folder"])
        return CarefulRep(tenonnx.InferenceSession(source, options, [device]))


class Suite(BackendTest):
    """onnx's compares the items of a sequence row by row and fails on one without rows."""

    @classmethod
    def assert_similar_outputs(
        cls,
        ref_outputs: Sequence[Any],
        outputs: Sequence[Any],
        rtol: float,
        atol: float,
        model_dir: str | None = None,
    ) -> None:
        assert_similar(list(ref_outputs), list(outputs), rtol, atol, model_dir or "output")


def cases(device: str) -> dict[str, Callable[..., None]]:
    """Every test function of the suite for a device, by name."""
    with warnings.catch_warnings():
        # The suite's own data generation overflows and divides by zero on purpose.
        warnings.simplefilter("ignore")
        suites = Suite(ChosenBackend, __name__).test_cases.values()
    return {
        name: function
        for suite in suites
        for name, function in vars(suite).items()
        if name.startswith("test_") and name.endswith(f"_{device}")
    }


def assert_similar(
    expected: Any, actual: Any, rtol: float, atol: float, where: str = "input"
) -> None:
    """Same structure, dtypes and shapes; floats within the tolerances, all else equal."""
    if expected is None:
        assert actual is None, where
        return
    if isinstance(expected, (list, tuple)):
        assert isinstance(actual, (list, tuple)), where
        assert len(actual) == len(expected), where
        for number, pair in enumerate(zip(expected, actual, strict=True)):
            assert_similar(*pair, rtol, atol, f"{where}[{number}]")
        return
    expected = np.asarray(expected)
    assert isinstance(actual, (np.ndarray, np.generic)), where
    assert actual.dtype == expected.dtype, where
    assert actual.shape == expected.shape, where
    if expected.dtype.kind in "biuOSU":
        np.testing.assert_array_equal(actual, expected, err_msg=where)
        return
    if expected.dtype.name == "bfloat16" and rtol:
        rtol = max(rtol, BFLOAT16_RTOL)
    wide = np.complex128 if expected.dtype.kind == "c" else np.float64
    np.testing.assert_allclose(
        actual.astype(wide), expected.astype(wide), rtol=rtol, atol=atol, err_msg=where
    )
