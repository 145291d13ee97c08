"""Steps of the CUDA provider refer to functions of modules and to data, as the CPU's do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import emulated
import pytest

import tenonnx
from tenonnx_cuda.device import CudaDevice
from tenonnx_cuda.namespace import DeviceNamespace
from walked import exported, not_data, onnx_models

SERVICES = (CudaDevice, DeviceNamespace, emulated.FakePlatform, emulated.FakeStream)
"""A device and its stream: a process has its own."""


@pytest.mark.parametrize("models", [onnx_models, exported])
@pytest.mark.parametrize("settings", [{}, {"enable_cuda_graph": "1"}], ids=["replayed", "graphs"])
def test_steps_are_data(models: Callable[[], Iterator[Any]], settings: dict[str, str]) -> None:
    own, found = 0, set[str]()
    for model in models():
        try:
            session = emulated.session(model, provider_options=settings)
        except tenonnx.TenonnxError:  # an operator that no provider runs
            continue
        steps = [*session.plan.steps, *session.plan.program.block.steps()]
        found |= not_data(steps, without=SERVICES)
        own += any(step.device.id == "cuda:0" for step in steps)
    emulated.settle()
    assert not found
    assert own > 40
