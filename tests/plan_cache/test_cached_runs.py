"""Runs of a cached plan with options or into buffers: the model is not read for them."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from plan_models import LAYERS, MODELS, X, answers, assert_same, is_kept, opened, saved

import tenonnx

CACHE = """<ir_version: 10, opset_import: ["": 21]>
g (float[n, 8] x, float[4, 8] cache, int64[n, 1] at) => (float[4, 8] next, float[n, 8] y) {
    next = ScatterND(cache, at, x)  e = Exp(x)  y = Add(e, x)
}"""
ENDLESS = """<ir_version: 10, opset_import: ["": 21]>
g (float[n, 8] x) => (float[n, 8] y) {
    yes = Constant <value=bool {1}> ()  none = Constant <value=int64 {9223372036854775807}> ()
    y = Loop (none, yes, x) <body = b (int64 i, bool go, float[n, 8] v)
        => (bool on, float[n, 8] o) { on = Identity(go)  o = Tanh(v) }>
}"""


def both(path: Path) -> tuple[tenonnx.InferenceSession, tenonnx.InferenceSession]:
    """Open a model, and the plan that was kept of it."""
    first, second = opened(path), opened(path)
    assert not is_kept(first)
    assert is_kept(second)
    return first, second


def was_read(session: tenonnx.InferenceSession) -> bool:
    """Return whether a session has read its model."""
    return session._model.is_open


@pytest.mark.parametrize("name", MODELS)
def test_runs_with_options(tmp_path: Path, name: str) -> None:
    first, second = both(saved(tmp_path / "model.onnx", MODELS[name]))
    wanted = answers(first)
    for _ in range(3):
        assert_same(second.run(None, {"x": X}, tenonnx.RunOptions()), wanted)
        assert_same(answers(second), wanted)
    assert not was_read(second)


def bound(session: tenonnx.InferenceSession, buffers: list[Any]) -> list[Any]:
    """Run into buffers."""
    binding = session.io_binding()
    binding.bind_cpu_input("x", X)
    for output, buffer in zip(session.get_outputs(), buffers, strict=True):
        if buffer is None:
            binding.bind_output(output.name)
        else:
            value = tenonnx.OrtValue.ortvalue_from_numpy(buffer)
            binding.bind_ortvalue_output(output.name, value)
    session.run_with_iobinding(binding)
    return list(binding.copy_outputs_to_cpu())


@pytest.mark.parametrize("name", MODELS)
def test_runs_into_buffers(tmp_path: Path, name: str) -> None:
    first, second = both(saved(tmp_path / "model.onnx", MODELS[name]))
    wanted = answers(first)
    assert_same(bound(second, [None] * len(wanted)), wanted)
    buffers = [np.full_like(each, 7) if each.dtype != object else None for each in wanted]
    for session in (first, second):
        found = bound(session, buffers)
        assert_same(found, wanted)
        for buffer, each in zip(buffers, found, strict=True):
            assert buffer is None or np.shares_memory(buffer, each)
    assert not was_read(second)


def test_steps_that_write_into_buffers_do(tmp_path: Path) -> None:
    first, second = both(saved(tmp_path / "model.onnx", CACHE))
    assert second.plan.program.direct == first.plan.program.direct
    assert not was_read(second)


@pytest.mark.parametrize("which", [0, 1])
def test_a_cache_that_is_input_and_output(tmp_path: Path, which: int) -> None:
    session = both(saved(tmp_path / "model.onnx", CACHE))[which]
    memory = np.zeros((4, 8), np.float32)
    cache = tenonnx.OrtValue.ortvalue_from_numpy(memory)
    x, at = X[:1], np.array([[2]])
    for _ in range(3):
        binding = session.io_binding()
        binding.bind_cpu_input("x", x)
        binding.bind_cpu_input("at", at)
        binding.bind_ortvalue_input("cache", cache)
        binding.bind_ortvalue_output("next", cache)
        binding.bind_output("y")
        session.run_with_iobinding(binding)
        np.testing.assert_array_equal(memory[2], x[0])
        np.testing.assert_allclose(binding.copy_outputs_to_cpu()[1], np.exp(x) + x, rtol=1e-6)
    assert not memory[[0, 1, 3]].any()
    assert which == 0 or not was_read(session)


def test_a_buffer_that_does_not_fit_is_named(tmp_path: Path) -> None:
    _, session = both(saved(tmp_path / "model.onnx"))
    with pytest.raises(tenonnx.InvalidArgument, match="output 'y' is float32"):
        bound(session, [np.zeros((3, 3), np.float32)])
    assert not was_read(session)


def test_options_stop_a_loop(tmp_path: Path) -> None:
    path = saved(tmp_path / "model.onnx", ENDLESS)
    tenonnx.InferenceSession(path, providers=["cpu"])
    session = opened(path)
    assert is_kept(session)
    options = tenonnx.RunOptions()
    timer = threading.Timer(0.2, lambda: setattr(options, "terminate", True))
    timer.start()
    start = time.monotonic()
    with pytest.raises(tenonnx.Fail, match="terminate is set"):
        session.run(None, {"x": X}, options)
    assert time.monotonic() - start < 20
    assert not was_read(session)


class Counting(tenonnx.RunOptions):
    """Counts how often it is asked whether to stop."""

    __slots__ = ("looks",)

    @property
    def terminate(self) -> bool:  # type: ignore[override]  # nobody sets it
        """Whether to stop."""
        self.looks = getattr(self, "looks", 0) + 1
        return False

    @terminate.setter
    def terminate(self, value: bool) -> None:
        del value


def test_every_step_looks_whether_to_stop(tmp_path: Path) -> None:
    first, second = both(saved(tmp_path / "model.onnx", LAYERS))
    seen = []
    for session in (first, second):
        options = Counting()
        session.run(None, {"x": X}, options)
        seen.append(options.looks)
    assert seen[1] >= seen[0] > 4
    assert not was_read(second)


def test_errors_of_such_runs_name_the_node(tmp_path: Path) -> None:
    path = saved(tmp_path / "model.onnx", LAYERS.replace("float[n, 8] x", "float[n, m] x"))
    said = []
    for session in both(path):
        with pytest.raises(tenonnx.RuntimeException) as caught:
            session.run(None, {"x": X[:, :5]}, tenonnx.RunOptions())
        said.append(str(caught.value))
    assert said[0] == said[1]
    assert "Gemm 'i'" in said[1]


def test_runs_for_some_outputs(tmp_path: Path) -> None:
    first, second = both(saved(tmp_path / "model.onnx", MODELS["loops"]))
    options = tenonnx.RunOptions()
    options.only_execute_path_to_fetches = True
    assert_same(second.run(["y"], {"x": X}, options), answers(first)[:1])
    assert not was_read(second)
