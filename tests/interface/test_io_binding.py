"""Bindings: outputs in the caller's memory, caches updated in place."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tenonnx
from models import FLOAT, INT64, model, node, value
from tenonnx import OrtValue

X = np.arange(6, dtype=np.float32).reshape(2, 3) - 2
W = np.ones((3, 4), np.float32)


@pytest.fixture
def session() -> tenonnx.InferenceSession:
    proto = model(
        [node("MatMul", "x w", "h"), node("Relu", "h", "y"), node("Transpose", "x", "t")],
        [value("x", FLOAT, ["batch", 3])],
        [value("y", FLOAT, ["batch", 4]), value("t", FLOAT, [3, "batch"])],
        {"w": W},
    )
    return tenonnx.InferenceSession(proto)


def test_outputs_are_made_when_none_are_given(session: tenonnx.InferenceSession) -> None:
    binding = session.io_binding()
    binding.bind_cpu_input("x", X)
    binding.bind_output("t")
    binding.bind_output("y")
    session.run_with_iobinding(binding)
    t, y = binding.copy_outputs_to_cpu()
    np.testing.assert_array_equal(t, X.T)
    np.testing.assert_array_equal(y, np.maximum(X @ W, 0))
    assert [v.shape() for v in binding.get_outputs()] == [[3, 2], [2, 4]]


@pytest.mark.parametrize("options", [None, tenonnx.RunOptions()], ids=["plain", "observed"])
@pytest.mark.parametrize("how", ["address", "value"])
def test_outputs_are_written_into_the_callers_memory(
    session: tenonnx.InferenceSession, how: str, options: Any
) -> None:
    buffers = {"y": np.zeros((2, 4), np.float32), "t": np.zeros((3, 2), np.float32)}
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", OrtValue.ortvalue_from_numpy(X))
    for name, buffer in buffers.items():
        if how == "address":
            place = buffer.ctypes.data
            binding.bind_output(name, "cpu", 0, np.float32, buffer.shape, place)
        else:
            binding.bind_ortvalue_output(name, OrtValue.ortvalue_from_numpy(buffer))
    for sign in (1, -1):
        binding.bind_cpu_input("x", sign * X)
        session.run_with_iobinding(binding, options)
        np.testing.assert_array_equal(buffers["y"], np.maximum(sign * X @ W, 0))
        np.testing.assert_array_equal(buffers["t"], sign * X.T)
    found = [output.data_ptr() for output in binding.get_outputs()]
    assert found == [buffer.ctypes.data for buffer in buffers.values()]


def test_inputs_at_an_address(session: tenonnx.InferenceSession) -> None:
    x = X.copy()
    binding = session.io_binding()
    binding.bind_input("x", "cpu", 0, np.float32, x.shape, x.ctypes.data)
    binding.bind_output("t")
    x[:] = 7
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[0], x.T)


def test_a_buffer_that_does_not_fit(session: tenonnx.InferenceSession) -> None:
    for wrong in (np.zeros((4, 4), np.float32), np.zeros((2, 4), np.float64)):
        binding = session.io_binding()
        binding.bind_cpu_input("x", X)
        binding.bind_ortvalue_output("y", OrtValue.ortvalue_from_numpy(wrong))
        with pytest.raises(tenonnx.InvalidArgument, match=r"output 'y' is float32\[2, 4\]; the bu"):
            session.run_with_iobinding(binding)
        with pytest.raises(tenonnx.InvalidArgument, match="bound to ndarray; expected an OrtValue"):
            binding.bind_ortvalue_output("y", wrong)  # type: ignore[arg-type]


def test_a_larger_buffer_is_not_filled_by_broadcasting() -> None:
    proto = model([node("Add", "x x", "y")], [value("x", FLOAT, ["n"])], [value("y", FLOAT, None)])
    session = tenonnx.InferenceSession(proto)
    binding = session.io_binding()
    binding.bind_cpu_input("x", X[0])
    buffer = np.zeros((2, 3), np.float32)
    binding.bind_ortvalue_output("y", OrtValue.ortvalue_from_numpy(buffer))
    with pytest.raises(tenonnx.InvalidArgument, match=r"output 'y' is float32\[3\]"):
        session.run_with_iobinding(binding)
    assert not buffer.any()


def test_what_cannot_be_bound(session: tenonnx.InferenceSession) -> None:
    binding = session.io_binding()
    with pytest.raises(tenonnx.InvalidArgument, match="no input 'X'; did you mean 'x'"):
        binding.bind_cpu_input("X", X)
    with pytest.raises(tenonnx.InvalidArgument, match="no output 'x'"):
        binding.bind_output("x")
    with pytest.raises(tenonnx.InvalidArgument, match="no output is bound"):
        session.run_with_iobinding(binding)
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(binding)
    binding.bind_output("y")
    binding.clear_binding_outputs()
    binding.clear_binding_inputs()
    assert binding.get_outputs() == []


@pytest.mark.parametrize("of", [lambda x: (x, x), lambda x: (x, x[:]), lambda x: (x[:], x)])
def test_an_output_over_an_input_that_is_read_later_is_safe(of: Callable[..., Any]) -> None:
    proto = model(
        [node("Add", "x x", "y"), node("Neg", "x", "z")],
        [value("x", FLOAT, [3])],
        [value("y", FLOAT, [3]), value("z", FLOAT, [3])],
    )
    session = tenonnx.InferenceSession(proto)
    x = np.array([1, 2, 3], np.float32)
    binding = session.io_binding()
    read, written = of(x)
    binding.bind_cpu_input("x", read)
    binding.bind_ortvalue_output("y", OrtValue.ortvalue_from_numpy(written))
    binding.bind_output("z")
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(x, [2, 4, 6])
    np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[1], [-1, -2, -3])


def cache_model(op: str) -> Any:
    cache, update = [1, 8, 4096, 128], [1, 8, 1, 128]
    if op == "TensorScatter":
        made, index = node("TensorScatter", "past new at", "present", axis=2), [1]
    else:
        made, index = node("ScatterND", "past at new", "present"), [1, 8, 1, 3]
    inputs = [value("past", FLOAT, cache), value("new", FLOAT, update), value("at", INT64, index)]
    return model([made], inputs, [value("present", FLOAT, cache)], opset=24)


def positions(op: str, step: int) -> Any:
    if op == "TensorScatter":
        return np.array([step])
    heads = [[[0, head, step]] for head in range(8)]
    return np.array([heads])


@pytest.mark.parametrize("op", ["TensorScatter", "ScatterND"])
def test_a_cache_is_updated_in_place_with_no_copy(op: str) -> None:
    session = tenonnx.InferenceSession(cache_model(op))
    cache = np.zeros((1, 8, 4096, 128), np.float32)
    own = OrtValue.ortvalue_from_numpy(cache)
    binding = session.io_binding()
    binding.bind_ortvalue_input("past", own)
    binding.bind_ortvalue_output("present", own)
    times = []
    for step in range(20):
        binding.bind_cpu_input("new", np.full((1, 8, 1, 128), step + 1, np.float32))
        binding.bind_cpu_input("at", positions(op, step))
        start = time.perf_counter()
        session.run_with_iobinding(binding)
        times.append(time.perf_counter() - start)
    np.testing.assert_array_equal(cache[0, 3, :20, 5], np.arange(20) + 1)
    assert not cache[:, :, 20:].any()
    start = time.perf_counter()
    cache.copy()
    assert min(times) < (time.perf_counter() - start) / 4


def test_a_kernel_of_several_outputs_updates_caches_in_place() -> None:
    options = tenonnx.SessionOptions()
    seen: list[Any] = []

    @options.operator("test::Attend", outputs=3)
    def attend(new: Any, keys: Any, values: Any, *, _outs: Any = (None, None, None)) -> Any:
        seen.append(_outs)
        grown = [keys.copy() if _outs[1] is None else _outs[1]]
        grown += [values.copy() if _outs[2] is None else _outs[2]]
        for cache in grown:
            cache[int(new[0])] = new[0]
        return new * 2, *grown

    attended = node("Attend", "new k v", "y k2 v2", domain="test")
    shapes = {"new": [1], "k": [4], "v": [4], "y": [1], "k2": [4], "v2": [4]}
    values = {name: value(name, FLOAT, shape) for name, shape in shapes.items()}
    inputs, outputs = [values[n] for n in ("new", "k", "v")], [values[n] for n in ("y", "k2", "v2")]
    session = tenonnx.InferenceSession(
        model([attended], inputs, outputs, domains={"test": 1}), options
    )
    keys, items = np.zeros(4, np.float32), np.zeros(4, np.float32)
    binding = session.io_binding()
    for name, cache in (("k", keys), ("v", items)):
        own = OrtValue.ortvalue_from_numpy(cache)
        binding.bind_ortvalue_input(name, own)
        binding.bind_ortvalue_output(f"{name}2", own)
    binding.bind_output("y")
    for step in (1, 3):
        binding.bind_cpu_input("new", np.array([step], np.float32))
        session.run_with_iobinding(binding)
    assert all(out is None and k is keys and v is items for out, k, v in seen)
    assert keys.tolist() == items.tolist() == [0, 1, 0, 3]
    assert binding.copy_outputs_to_cpu()[2].tolist() == [6]


def test_runs_with_other_arrays_are_as_the_first(session: tenonnx.InferenceSession) -> None:
    binding = session.io_binding()
    for name in ("y", "t"):
        binding.bind_output(name)
    for rows in (2, 2, 3, 1, 1):
        x = np.random.default_rng(rows).standard_normal((rows, 3), np.float32)
        binding.bind_cpu_input("x", x)
        session.run_with_iobinding(binding)
        y, t = binding.copy_outputs_to_cpu()
        np.testing.assert_allclose(y, np.maximum(x @ W, 0), rtol=1e-6, atol=1e-6)
        np.testing.assert_array_equal(t, x.T)
    binding.bind_cpu_input("x", X.astype(np.float64))
    for _ in range(2):
        with pytest.raises(tenonnx.InvalidArgument, match="float64"):
            session.run_with_iobinding(binding)
    binding.bind_cpu_input("x", X)
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[1], X.T)


def test_an_input_that_comes_to_lie_in_a_buffer_is_read_first() -> None:
    nodes = [node("Neg", "x", "y"), node("Add", "x y", "z")]
    shape = [2, 3]
    proto = model(
        nodes, [value("x", FLOAT, shape)], [value("y", FLOAT, shape), value("z", FLOAT, shape)]
    )
    session = tenonnx.InferenceSession(proto)
    buffer = np.zeros((2, 3), np.float32)
    binding = session.io_binding()
    binding.bind_ortvalue_output("y", OrtValue.ortvalue_from_numpy(buffer))
    binding.bind_output("z")
    binding.bind_cpu_input("x", X.copy())
    for x in (X.copy(), X + 1, buffer):
        before = x.copy()
        binding.bind_cpu_input("x", x)
        session.run_with_iobinding(binding)
        np.testing.assert_array_equal(buffer, -before)
        np.testing.assert_array_equal(binding.get_outputs()[1].numpy(), 0 * before)


def test_a_value_that_lies_elsewhere_now_is_bound_anew(session: tenonnx.InferenceSession) -> None:
    value = OrtValue.ortvalue_from_numpy(X.T.copy().T)
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", value)
    binding.bind_output("t")
    session.run_with_iobinding(binding)
    value.data_ptr()  # makes a copy of it
    value.update_inplace(X + 1)
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[0], (X + 1).T)
