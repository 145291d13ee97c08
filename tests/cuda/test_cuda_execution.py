"""Recorded runs, and values that stay on the device, which is simulated."""

from __future__ import annotations

import gc
import sys
import weakref
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import emulated
import numpy as np
import onnx
import pytest
import strict

import tenonnx
from models import model, node, value
from tenonnx.interface.ort_value import OrtValue
from tenonnx_cuda.capture.graph import MIN_SEPARATE_COPY_BYTES, CapturedGraph, GraphedSteps
from tenonnx_cuda.capture.replay import MAX_CAPTURES
from tenonnx_cuda.cupy_stream import LARGEST_LIMIT, TF32, CupyStream

CHAIN = model(
    [
        node("Shape", "x", "s"),
        node("Exp", "x", "a"),
        node("Reshape", "a s", "b"),
        node("Add", "b W", "c"),
        node("ReduceSum", "c axes", "y", keepdims=0),
        node("Neg", "c", "z"),
    ],
    [value("x", shape=("n", 3)), value("axes", onnx.TensorProto.INT64, (1,))],
    [value("y", shape=(None,)), value("z", shape=(None, 3))],
    {"W": np.float32([1, 2, 3])},
)


def graphed_steps(session: tenonnx.InferenceSession) -> list[GraphedSteps]:
    return [step.call for step in session.plan.steps if isinstance(step.call, GraphedSteps)]


def run(session: tenonnx.InferenceSession, x: Any, axis: int = 1) -> None:
    y, z = session.run(None, {"x": x, "axes": np.array([axis])})
    c = np.exp(x) + np.float32([1, 2, 3])
    np.testing.assert_allclose(y, c.sum(axis), rtol=1e-5)
    np.testing.assert_allclose(z, -c, rtol=1e-5)


def graphed(source: Any = CHAIN, **settings: Any) -> tenonnx.InferenceSession:
    return emulated.session(source, provider_options={"enable_cuda_graph": "1"}, **settings)


def test_runs_of_one_shape_are_replayed_with_new_contents() -> None:
    session = graphed()
    (steps,) = graphed_steps(session)
    draws = np.random.default_rng(0)
    for number in range(5):
        run(session, draws.standard_normal((4, 3)).astype(np.float32))
        assert steps.replays == max(0, number)
    for _ in range(3):
        run(session, draws.standard_normal((2, 3)).astype(np.float32))
    assert steps.replays == 4 + 2
    run(session, np.ones((4, 3), np.float32), axis=0)
    assert steps.replays == 6


def test_outputs_outlive_the_next_replay() -> None:
    session = graphed()
    kept = []
    for number in range(4):
        x = np.full((1, 3), number, np.float32)
        kept.append(session.run(None, {"x": x, "axes": np.array([1])})[1])
    for number, z in enumerate(kept):
        np.testing.assert_allclose(z[0], -(np.exp(number) + np.float32([1, 2, 3])), rtol=1e-5)


def test_no_more_graphs_are_kept_than_allowed() -> None:
    session = graphed()
    (steps,) = graphed_steps(session)
    for rows in range(1, MAX_CAPTURES + 9):
        for _ in range(2):
            run(session, np.ones((rows, 3), np.float32))
    assert steps.replays == MAX_CAPTURES + 8
    run(session, np.ones((1, 3), np.float32))
    assert steps.replays == MAX_CAPTURES + 8


def test_what_cannot_be_captured_runs_all_the_same(caplog: pytest.LogCaptureFixture) -> None:
    session = graphed()
    session._providers[0].stream.broken = True  # type: ignore[attr-defined]  # the emulated one's
    for _ in range(4):
        run(session, np.ones((2, 3), np.float32))
    assert [r.message for r in caplog.records] == [
        "a run is not captured, and goes on without: the stream is told to fail"
    ]


def test_inputs_that_there_is_no_room_for_twice_are_not_captured(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def copy(array: Any) -> Any:
        raise MemoryError(f"{array.nbytes} bytes")

    session = graphed()
    monkeypatch.setattr(strict.StrictArray, "copy", copy, raising=False)
    for _ in range(3):
        run(session, np.ones((2, 3), np.float32))
    assert [r.message for r in caplog.records] == [
        "a run is not captured, and goes on without: 24 bytes"
    ]


def test_data_dependent_shapes_and_random_numbers_are_not_captured() -> None:
    mixed = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["": 21]>
        test (float[n] x) => (int64[a, b] y, float[n] r) {
            e = Exp(x)  f = Floor(e)  g = Relu(f)  nz = NonZero(g)  y = Neg(nz)
            u = RandomUniformLike(x)  r = Add(u, e)
        }
    """)
    session = graphed(mixed)
    assert len(graphed_steps(session)) == 1
    draws = set()
    for _ in range(4):
        y, r = session.run(None, {"x": np.float32([-1, 1, 2])})
        assert y.tolist() == [[-1, -2]]
        draws.add(float(r[0]))
    assert len(draws) == 4


def on_device(session: tenonnx.InferenceSession, array: Any) -> OrtValue:
    device = session._providers[0].device
    return OrtValue(device.upload(array), device)


ADD = model([node("Add", "x W", "y")], [value("x")], [value("y")], {"W": np.ones(2, np.float32)})


def test_a_session_gives_its_stream_back_when_it_is_gone() -> None:
    """And not when the collector comes by: another process may wait for the memory."""
    session = emulated.session(CHAIN)
    for _ in range(3):
        session.run(None, {"x": np.ones((2, 3), np.float32), "axes": np.array([0])})
    stream = weakref.ref(session._providers[0].stream)
    gc.disable()
    try:
        del session
        assert stream() is None
    finally:
        gc.enable()


def test_values_stay_on_the_device_between_runs() -> None:
    session = emulated.session(ADD)
    binding = session.io_binding()
    state = on_device(session, np.zeros(2, np.float32))
    device = session._providers[0].device
    emulated.settle()
    log = emulated.EmulatedProvider.where.log
    log.clear()
    for _ in range(5):
        binding.bind_ortvalue_input("x", state)
        binding.bind_output("y", device)
        session.run_with_iobinding(binding)
        (state,) = binding.get_outputs()
    assert log == []
    assert state.device.id == "cuda:0"
    assert state.numpy().tolist() == [5, 5]


def test_a_bound_value_on_the_device_is_written() -> None:
    session = emulated.session(ADD)
    binding = session.io_binding()
    target = on_device(session, np.zeros(2, np.float32))
    memory = target.value.held
    binding.bind_cpu_input("x", np.float32([1, 2]))
    binding.bind_ortvalue_output("y", target)
    session.run_with_iobinding(binding)
    assert memory.tolist() == [2, 3]
    assert binding.get_outputs() == [target]
    wrong = on_device(session, np.zeros(3, np.float32))
    binding.bind_ortvalue_output("y", wrong)
    with pytest.raises(tenonnx.InvalidArgument, match="to write in place"):
        session.run_with_iobinding(binding)


def test_inputs_on_the_device_are_checked_where_they_are() -> None:
    session = emulated.session(ADD)
    (y,) = session.run_with_ort_values(None, {"x": on_device(session, np.float32([3, 4]))})
    assert y.numpy().tolist() == [4, 5]
    with pytest.raises(tenonnx.InvalidArgument, match="got dtype float64"):
        session.run_with_ort_values(None, {"x": on_device(session, np.zeros(2))})
    with pytest.raises(tenonnx.InvalidArgument, match="got rank 2"):
        session.run_with_ort_values(None, {"x": on_device(session, np.zeros((1, 2), np.float32))})


def test_outputs_on_the_device_are_no_views_of_inputs_or_weights() -> None:
    views = model(
        [node("Identity", "x", "same"), node("Identity", "W", "weight")],
        [value("x")],
        [value("same"), value("weight")],
        {"W": np.ones(2, np.float32)},
    )
    session = emulated.session(views, graph_optimization_level=0)
    x = on_device(session, np.float32([1, 2]))
    device = session._providers[0].device
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", x)
    for name in ("same", "weight"):
        binding.bind_output(name, device)
    session.run_with_iobinding(binding)
    same, weight = binding.get_outputs()
    assert not np.shares_memory(same.value.held, x.value.held)
    weight.update_inplace(np.zeros(2, np.float32))
    session.run_with_iobinding(binding)
    assert binding.get_outputs()[1].numpy().tolist() == [1, 1]


@pytest.mark.parametrize(("asked", "tf32"), [({}, True), ({"use_tf32": "0"}, False)])
def test_use_tf32_is_the_streams(asked: dict[str, str], tf32: bool) -> None:
    platform = emulated.FakePlatform()
    emulated.session(CHAIN, emulated.provider_on(platform), provider_options=asked)
    assert ("stream", tf32) in platform.log


class Handle:
    """cuBLAS, as far as it is asked for its precision."""

    mode = 0

    def getMathMode(self, handle: str) -> int:  # noqa: N802 - cupy's name
        assert handle == "handle"
        return self.mode

    def setMathMode(self, handle: str, mode: int) -> None:  # noqa: N802 - cupy's name
        assert handle == "handle"
        self.mode = mode


def test_precision_is_set_for_a_streams_work_and_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    cublas = Handle()
    monkeypatch.setitem(sys.modules, "cupy_backends.cuda.libs.cublas", cublas)
    monkeypatch.setattr("importlib.import_module", lambda name: sys.modules[name])
    device = nullcontext()
    device.cublas_handle = "handle"  # type: ignore[attr-defined]  # a device that does nothing
    cuda = SimpleNamespace(
        Stream=lambda **_: nullcontext(),
        MemoryPool=lambda *_: SimpleNamespace(malloc=None, free_all_blocks=list),
        using_allocator=nullcontext,
        memory=SimpleNamespace(OutOfMemoryError=MemoryError),
    )
    stream = CupyStream(SimpleNamespace(cuda=cuda), device, LARGEST_LIMIT, tf32=True)
    with stream.active():
        assert cublas.mode == TF32
        with stream.active():
            assert cublas.mode == TF32
        assert cublas.mode == TF32
    assert cublas.mode == 0
    with pytest.raises(ValueError, match="inside"), stream.active():
        raise ValueError("inside")
    assert cublas.mode == 0


def test_what_brings_arrays_from_the_host_is_not_captured(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replay would read memory that is somebody else's by then."""
    large = model(
        [
            node("Exp", "x", "a"),
            node("Floor", "a", "b"),
            node("AffineGrid", "b s", "c"),
            node("Ceil", "c", "d"),
            node("Neg", "d", "y"),
        ],
        [value("x", shape=(1, 2, 3))],
        [value("y", shape=None)],
        {"s": np.int64([1, 1, 4, 3])},
    )
    for listed in (True, False):
        if not listed:
            monkeypatch.setattr("tenonnx_cuda.capture.capturable.NEVER_CAPTURED", frozenset())
        session = graphed(large, graph_optimization_level=0)
        x = np.linspace(-1, 3, 6, dtype=np.float32).reshape(1, 2, 3)
        (expected,) = tenonnx.InferenceSession(large, providers=["cpu"]).run(None, {"x": x})
        for _ in range(4):
            np.testing.assert_array_equal(session.run(None, {"x": x})[0], expected)
        assert any(r.replays for r in graphed_steps(session)) == listed
    assert len(caplog.records) == 1
    assert "of a host array" in caplog.text


def test_large_inputs_are_read_where_they_are_until_they_move() -> None:
    session = graphed()
    (steps,) = graphed_steps(session)
    rows = MIN_SEPARATE_COPY_BYTES // 12 + 1
    draws = np.random.default_rng(0)
    arrays = [on_device(session, draws.standard_normal((rows, 3)).astype(np.float32)) for _ in "ab"]

    def check(which: int) -> None:
        x = arrays[which]
        feeds = {"x": x, "axes": OrtValue(np.array([1]))}
        y, z = session.run_with_ort_values(None, feeds)
        c = np.exp(x.numpy()) + np.float32([1, 2, 3])
        np.testing.assert_allclose(y.numpy(), c.sum(1), rtol=1e-5)
        np.testing.assert_allclose(z.numpy(), -c, rtol=1e-5)

    def copied_in() -> int:
        (take,) = (take for take in steps._captured.values() if isinstance(take, CapturedGraph))
        return sum(own is not None and own.nbytes >= MIN_SEPARATE_COPY_BYTES for own in take.inputs)

    for _ in range(4):
        check(0)
        arrays[0].value.held[...] += 1
    assert (steps.replays, copied_in()) == (3, 0)
    for number in range(6):
        check(number % 2)
    assert (steps.replays, copied_in()) == (9, 1)
