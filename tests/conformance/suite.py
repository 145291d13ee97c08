"""onnx's own runner, with a comparison that sees everything and a choice of how models load."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx

import tenonnx
from tenonnx.backend import TenonnxBackend, TenonnxBackendRep
from tenonnx.testing import assert_similar
from tenonnx.testing.suite import Careful


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
    """Takes the form of the model, the optimization level and a folder as keyword arguments."""

    @classmethod
    def prepare(
        cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any
    ) -> TenonnxBackendRep:
        options = tenonnx.SessionOptions(graph_optimization_level=kwargs["level"])
        source = FORMS[kwargs["form"]](model, kwargs["folder"])
        return CarefulRep(tenonnx.InferenceSession(source, options, [device]))


def cases(device: str) -> dict[str, Callable[..., None]]:
    """Every test function of the suite for a device, by name."""
    with warnings.catch_warnings():
        # The suite's own data generation overflows and divides by zero on purpose.
        warnings.simplefilter("ignore")
        suites = Careful(ChosenBackend, __name__).test_cases.values()
    return {
        name: function
        for suite in suites
        for name, function in vars(suite).items()
        if name.startswith("test_") and name.endswith(f"_{device}")
    }
