"""The CUDA provider on a device; skipped, with what ``check`` says, where there is none."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import onnx
import pytest
import test_cuda_contract as contract
import test_cuda_generation as generation

import tenonnx
from models import model, node, value
from tenonnx.interface.ort_value import OrtValue
from tenonnx.provider import Provider, why_unusable
from tenonnx.testing import ProviderTests
from tenonnx.weights.registry import WeightRegistry
from tenonnx_cuda.capture.graph import GraphedSteps
from tenonnx_cuda.provider import CUDAExecutionProvider

MISSING = why_unusable(CUDAExecutionProvider)

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(MISSING is not None, reason=str(MISSING))]


ZERO = "numpy's 1.9e-7 is expected where cuFFT gives the 0 that it stands for"

GAPS = {
    name: why
    for name, why in contract.TestEmulated.gaps.items()
    if name != "test_attention_4d_causal_fp16_expanded"  # cupy rounds it less often than numpy
} | dict.fromkeys(("test_dft_inverse", "test_dft_inverse_opset19"), ZERO)


class TestCuda(ProviderTests):
    provider: ClassVar[str | type[Provider]] = "cuda"
    options: ClassVar[Mapping[str, Any]] = contract.TestEmulated.options
    cases: ClassVar[str] = contract.TestEmulated.cases
    gaps: ClassVar[Mapping[str, str]] = GAPS
    frameworks: ClassVar[tuple[str, ...]] = ("cupy", "cupyx")
    copies: ClassVar[str] = "weights pass through pinned buffers, which cupy keeps"


def mlp(folder: Path, size: int = 2048, layers: int = 4) -> Path:
    """A model of 16 MiB a layer, with its weights in a file of their own."""
    draws = np.random.default_rng(0)
    weights = {
        f"W{i}": (draws.standard_normal((size, size)) / size**0.5).astype(np.float32)
        for i in range(layers)
    }
    nodes = []
    for i in range(layers):
        nodes += [node("MatMul", f"h{i} W{i}", f"p{i}"), node("Tanh", f"p{i}", f"h{i + 1}")]
    made = model(
        nodes,
        [value("h0", shape=("n", size))],
        [value(f"h{layers}", shape=("n", size))],
        weights,
    )
    path = folder / "mlp.onnx"
    onnx.save(made, path, save_as_external_data=True, location="weights", size_threshold=0)
    return path


def opened(source: Any, options: Mapping[str, Any] | None = None) -> tenonnx.InferenceSession:
    settings = tenonnx.SessionOptions(weights=WeightRegistry())
    return tenonnx.InferenceSession(source, settings, [("cuda", options or {}), "cpu"])


X = np.random.default_rng(1).standard_normal((3, 2048)).astype(np.float32)


def on_cpu(path: Path) -> Any:
    return tenonnx.InferenceSession(path, providers=["cpu"]).run(None, {"h0": X})[0]


def test_use_tf32_rounds_factors_and_without_it_they_are_float32() -> None:
    draws, shape = np.random.default_rng(2), (256, 256)
    a, b = (draws.standard_normal(shape).astype(np.float32) for _ in "ab")
    product = model(
        [node("MatMul", "a b", "y")],
        [value("a", shape=shape), value("b", shape=shape)],
        [value("y", shape=shape)],
    )
    exact = a.astype(np.float64) @ b.astype(np.float64)
    errors = []
    for tf32 in (True, False):
        (y,) = opened(product, {"use_tf32": tf32}).run(None, {"a": a, "b": b})
        errors.append(np.linalg.norm(y - exact) / np.linalg.norm(exact))
    assert errors[1] < 1e-6 < 1e-5 < errors[0] < 1e-3


def test_threads_share_a_session_and_have_their_own(tmp_path: Path) -> None:
    path = mlp(tmp_path, 512, 3)
    shared, own = opened(path, {"enable_cuda_graph": True}), [opened(path) for _ in range(4)]
    feeds = [
        np.random.default_rng(i).standard_normal((4, 512)).astype(np.float32) for i in range(8)
    ]
    expected = [tenonnx.InferenceSession(path).run(None, {"h0": x})[0] for x in feeds]
    wrong: list[int] = []

    def work(number: int) -> None:
        for _ in range(50):
            for session in (shared, own[number % 4]):
                (y,) = session.run(None, {"h0": feeds[number]})
                if not np.allclose(y, expected[number], atol=2e-2):
                    wrong.append(number)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_session_that_ran_out_says_so_and_goes_on(tmp_path: Path) -> None:
    path = mlp(tmp_path)
    session = opened(path, {"gpu_mem_limit": 16 << 20})
    expected = on_cpu(path)
    with pytest.raises((tenonnx.RuntimeException, MemoryError), match="out of memory"):
        session.run(None, {"h0": np.ones((4096, 2048), np.float32)})
    np.testing.assert_allclose(session.run(None, {"h0": X})[0], expected, atol=2e-2)


@pytest.mark.parametrize("graphed", [False, True])
def test_runs_of_one_shape_agree_and_allocate_nothing(tmp_path: Path, graphed: bool) -> None:
    session = opened(mlp(tmp_path), {"enable_cuda_graph": graphed})
    expected = on_cpu(tmp_path / "mlp.onnx")
    for _ in range(3):
        session.run(None, {"h0": X})
    stream = session._providers[0].stream  # type: ignore[attr-defined]  # CUDA's
    pools = (stream._pool, stream._of_graphs)
    before = [pool.total_bytes() for pool in pools]
    replayed = [s.call for s in session.plan.steps if isinstance(s.call, GraphedSteps)]
    assert [each.replays for each in replayed] == [2] * graphed, "products are recorded"
    for _ in range(20):
        np.testing.assert_allclose(session.run(None, {"h0": X})[0], expected, atol=2e-2)
    assert [pool.total_bytes() for pool in pools] == before


def test_a_graph_that_finds_no_room_leaves_the_others_theirs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import cupy

    def refuse(nbytes: int) -> Any:
        raise cupy.cuda.memory.OutOfMemoryError(nbytes, 0, 0)

    path = mlp(tmp_path, 512, 3)
    session, x = opened(path, {"enable_cuda_graph": True}), X[:, :512].copy()
    large = np.resize(x, (2000, 512))
    expected = [tenonnx.InferenceSession(path).run(None, {"h0": a})[0] for a in (x, large)]
    replayed = [s.call for s in session.plan.steps if isinstance(s.call, GraphedSteps)]
    for number in range(9):
        if number == 3:
            monkeypatch.setattr(cupy.cuda, "Memory", refuse)
        which = number // 3 % 2
        (y,) = session.run(None, {"h0": (x, large)[which]})
        np.testing.assert_allclose(y, expected[which], atol=2e-2)
    assert [each.replays for each in replayed] == [5], "the large one has no graph"


def test_values_stay_and_are_lent() -> None:
    import cupy

    add = model([node("Add", "x W", "y")], [value("x")], [value("y")], {"W": np.float32([1, 2])})
    session = opened(add)
    given = cupy.asarray(np.float32([3, 4]))
    x = OrtValue.from_dlpack(given)
    assert x.data_ptr() == given.data.ptr
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", x)
    binding.bind_output("y", "cuda")
    session.run_with_iobinding(binding)
    (y,) = binding.get_outputs()
    assert y.device_name() == "cuda"
    assert cupy.from_dlpack(y).tolist() == [4, 6]


def test_what_another_stream_still_writes_is_waited_for() -> None:
    import cupy

    square = (512, 512)
    given, made = [value("x", shape=square)], [value("y", shape=square)]
    session = opened(model([node("Neg", "x", "y")], given, made))
    matrix = product = cupy.eye(512, dtype=np.float32)
    with cupy.cuda.Stream(non_blocking=True):
        for _ in range(8):
            product = product @ matrix
        x = OrtValue.from_dlpack(product)
    (y,) = session.run_with_ort_values(None, {"x": x})
    np.testing.assert_array_equal(y.numpy(), -np.eye(512, dtype=np.float32))


def test_an_output_lies_in_order_from_its_address_on() -> None:
    import cupy

    turned = model([node("Neg", "x", "n"), node("Transpose", "n", "y")],
                   [value("x", shape=(2, 3))], [value("y", shape=(3, 2))])  # fmt: skip
    session, x = opened(turned), np.arange(6, dtype=np.float32).reshape(2, 3)
    binding = session.io_binding()
    binding.bind_cpu_input("x", x)
    binding.bind_output("y", "cuda")
    session.run_with_iobinding(binding)
    (y,) = binding.get_outputs()
    memory = cupy.cuda.UnownedMemory(y.data_ptr(), x.nbytes, y)
    there = cupy.ndarray((6,), np.float32, cupy.cuda.MemoryPointer(memory, 0))
    assert there.tolist() == (-x.T).reshape(-1).tolist()


@pytest.mark.parametrize("graphed", [False, True])
def test_a_callers_stream_and_memory_are_used(graphed: bool) -> None:
    import cupy

    add = model([node("Add", "x W", "h"), node("Neg", "h", "y")], [value("x")], [value("y")],
                {"W": np.float32([1, 2])})  # fmt: skip
    own = cupy.cuda.Stream(non_blocking=True)
    session = opened(add, {"user_compute_stream": str(own.ptr), "enable_cuda_graph": graphed})
    given, target = cupy.empty(2, np.float32), cupy.empty(2, np.float32)
    binding = session.io_binding()
    binding.bind_input("x", "cuda", 0, np.float32, (2,), given.data.ptr)
    binding.bind_output("y", "cuda", 0, np.float32, (2,), target.data.ptr)
    for number in range(4):
        with own:
            given[...] = number
        session.run_with_iobinding(binding)
        assert target.tolist() == [-number - 1, -number - 2]


@pytest.mark.parametrize("graphed", [False, True])
def test_a_generation_updates_its_caches_in_place(graphed: bool) -> None:
    """One graph serves all of its tokens, whose lengths are on the device alone."""
    shape = (1, generation.GROUPS, 64, generation.SIZE)
    session = opened(generation.grouped(), {"enable_cuda_graph": graphed, "use_tf32": False})
    run = generation.Bound(session, generation.PAIRS, shape)
    reference = tenonnx.InferenceSession(generation.grouped(), providers=["cpu"])
    past = {name: np.zeros(shape, np.float32) for name in generation.PAIRS}
    places, length = {n: v.data_ptr() for n, v in run.caches.items()}, 0
    for number, steps in enumerate((7, *[1] * 9)):
        length += steps
        feeds = {
            "x": generation.tokens(steps, number),
            "attention_mask": generation.mask(length),
        }
        logits = run(**feeds)
        y, *present = reference.run(None, {**feeds, **past})
        past = dict(zip(generation.PAIRS, present, strict=True))
        np.testing.assert_allclose(logits, y, atol=1e-4)
    for name, cache in run.caches.items():
        np.testing.assert_allclose(cache.numpy(), past[name], atol=1e-4)
        assert cache.data_ptr() == places[name]
    assert run.replays == (8 if graphed else 0)


LOSING = """
import sys, traceback
import cupy, numpy as np, tenonnx

def run(session, feeds={"h0": np.ones((2, 64), np.float32)}):
    try:
        session.run(None, feeds)
    except tenonnx.DeviceReset as error:
        assert "this process has lost the device" in str(error), error
        print("told")

opened = lambda: tenonnx.InferenceSession(sys.argv[1], providers=[("cuda", how), "cpu"])
how = {"enable_cuda_graph": sys.argv[2]}
session = opened()
for _ in range(3):
    run(session)
wild = cupy.RawKernel('extern "C" __global__ void wild(float* x) { x[1ull << 45] = 1; }', "wild")
wild((1,), (1,), (cupy.zeros(1, np.float32),))
run(session)
run(session)
try:
    run(opened())
except tenonnx.TenonnxError as error:
    print("told")
print("alive", flush=True)
"""


@pytest.mark.parametrize("graph", ["0", "1"])
def test_a_device_that_was_lost_is_told(tmp_path: Path, graph: str) -> None:
    """Another kernel's wild access ends all of a process's work there, but not the process."""
    command = [sys.executable, "-c", LOSING, str(mlp(tmp_path, 64, 1)), graph]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.split() == ["told", "told", "told", "alive"], done.stdout + done.stderr
