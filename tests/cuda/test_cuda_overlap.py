"""Runs that start while weights are on their way, on an emulated device.

Its copies are done when somebody waits for them and no sooner: what is read before is rubbish.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import emulated
import numpy as np
import onnx
import onnx_ir as ir
import pytest

import tenonnx
from models import FLOAT, model, node, value
from tenonnx.interface.ort_value import OrtValue
from tenonnx.weights.mapping import Mapping
from tenonnx.weights.registry import WeightRegistry
from tenonnx_cuda.weights import allocations
from tenonnx_cuda.weights.device_weights import DeviceWeights
from tenonnx_cuda.weights.sharing import Exchange
from tenonnx_cuda.weights.staging import Staging

SIZE = 16


class Held(emulated.FakePlatform):
    """One whose copies after the first few are held back.

    Attributes:
        go: Lets them go on.
        free: Copies that are not.
    """

    def __init__(self, free: int) -> None:
        super().__init__()
        self.go = threading.Event()
        self.free = free
        self.error: OSError | None = None

    def copy(self, block: Any, offset: int, source: Any) -> Any:
        self.free -= 1
        if self.free < 0:
            assert self.go.wait(30)
            if self.error is not None:
                raise self.error
        return super().copy(block, offset, source)


def layers(folder: Path, count: int = 4) -> tuple[Path, Any]:
    """A model whose weights are copied one by one, and what it makes of ones."""
    draws = np.random.default_rng(0)
    weights = {
        f"W{i}": draws.standard_normal((SIZE, SIZE)).astype(np.float32) for i in range(count)
    }
    nodes = []
    for i in range(count):
        nodes += [node("MatMul", f"h{i} W{i}", f"p{i}"), node("Tanh", f"p{i}", f"h{i + 1}")]
    made = model(
        nodes,
        [value("h0", FLOAT, ("n", SIZE))],
        [value(f"h{count}", FLOAT, ("n", SIZE))],
        weights,
    )
    path = folder / "model.onnx"
    onnx.save(made, path, save_as_external_data=True, location="data", size_threshold=0)
    h = np.ones((2, SIZE))
    for matrix in weights.values():
        h = np.tanh(h @ matrix)
    return path, h


X = np.ones((2, SIZE), np.float32)


@pytest.fixture(autouse=True)
def _one_allocation_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allocations, "ALLOCATION_BYTES", 1)


def opened(path: Any, platform: emulated.FakePlatform, **options: Any) -> Any:
    settings = {name: str(option) for name, option in options.items()}
    return emulated.session(
        path, emulated.provider_on(platform), weights=WeightRegistry(), provider_options=settings
    )


@pytest.mark.parametrize("graphed", [0, 1])
def test_a_run_starts_before_the_last_weights_are_there(tmp_path: Path, graphed: int) -> None:
    path, expected = layers(tmp_path)
    platform = Held(free=2)
    session = opened(path, platform, enable_cuda_graph=graphed)
    steps: list[str] = []
    products = platform.xp.matmul

    def matmul(*given: Any) -> Any:
        steps.append("MatMul")
        if len(steps) == 2:
            platform.go.set()  # what comes now is on its way only from here on
        return products(*given)

    platform.xp.matmul = matmul
    calls = session.run(None, {"h0": X})
    np.testing.assert_allclose(calls[0], expected, rtol=1e-4)
    assert len(steps) == 4
    for _ in range(3):
        np.testing.assert_allclose(session.run(None, {"h0": X})[0], expected, rtol=1e-4)


def test_threads_and_sessions_all_wait(tmp_path: Path) -> None:
    path, expected = layers(tmp_path)
    platform = Held(free=1)
    registry = WeightRegistry()
    provider = emulated.provider_on(platform)
    sessions = [emulated.session(path, provider, weights=registry) for _ in range(2)]
    found: list[Any] = []

    def work(number: int) -> None:
        found.append(sessions[number % 2].run(None, {"h0": X})[0])

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    platform.go.set()
    for thread in threads:
        thread.join()
    assert len(found) == 6
    for each in found:
        np.testing.assert_allclose(each, expected, rtol=1e-4)
    assert sum(entry[0] == "allocate" for entry in platform.log) == 4


def test_an_upload_that_fails_is_the_runs_error_and_the_next_session_tries_anew(
    tmp_path: Path,
) -> None:
    path, expected = layers(tmp_path)
    platform = Held(free=2)
    platform.error = OSError("the disk is gone")
    registry = WeightRegistry()
    provider = emulated.provider_on(platform)
    session = emulated.session(path, provider, weights=registry)
    platform.go.set()
    for _ in range(2):
        with pytest.raises((tenonnx.RuntimeException, OSError), match="the disk is gone"):
            session.run(None, {"h0": X})
    del session
    platform.error = None
    (y,) = emulated.session(path, provider, weights=registry).run(None, {"h0": X})
    np.testing.assert_allclose(y, expected, rtol=1e-4)


def test_weights_that_bodies_get_and_outputs_that_are_weights_are_waited_for() -> None:
    source = onnx.parser.parse_model(f"""
        <ir_version: 10, opset_import: ["": 21]>
        test (float[{SIZE}] x, bool on) => (float[{SIZE}] y, float[{SIZE}] z, float[{SIZE}] W)
        <int64 n = {{3}}, bool yes = {{1}}, float[{SIZE}] W = {{{", ".join(["2"] * SIZE)}}}> {{
            h = Mul(x, W)
            y = Loop(n, yes, W) <body = b (int64 i, bool c, float[{SIZE}] s)
                => (bool d, float[{SIZE}] t) {{ d = Identity(c) t = Add(s, h) }}>
            z = If(on) <then_branch = a () => (float[{SIZE}] u) {{ u = Identity(W) }},
                else_branch = e () => (float[{SIZE}] v) {{ v = Neg(h) }}>
        }}
    """)
    platform = emulated.FakePlatform()
    session = opened(source, platform)
    x = np.arange(SIZE, dtype=np.float32)
    y, z, weight = session.run(None, {"x": x, "on": np.array(True)})
    np.testing.assert_array_equal(y, 2 + 3 * 2 * x)
    np.testing.assert_array_equal(z, np.full(SIZE, 2))
    device = session._providers[0].device
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", OrtValue(device.upload(x), device))
    binding.bind_cpu_input("on", np.array(False))
    for name in "yzW":
        binding.bind_output(name, device)
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(binding.get_outputs()[2].numpy(), weight)


def test_what_others_get_is_there_before_it_is_offered(tmp_path: Path) -> None:
    """Another process cannot wait for this one's events."""
    content = np.random.default_rng(0).integers(0, 255, 2 << 20).astype(np.uint8)
    path = tmp_path / "bytes"
    content.tofile(path)
    offered: list[Any] = []

    class Sharing(emulated.FakePlatform):
        def export(self, block: Any) -> bytes:
            offered.append(block.held[: content.size].copy())
            return super().export(block)

    platform, registry = Sharing(), WeightRegistry()
    weight = registry.view(Mapping(path), 0, content.size, ir.DataType.UINT8, (content.size,))
    there = DeviceWeights(
        platform, Staging(platform, 1 << 18), exchange=Exchange(platform, tmp_path)
    )
    there.preload([weight], wait=False)
    assert len(offered) == 1
    np.testing.assert_array_equal(offered[0], content)


def test_weights_of_chains_and_products_are_in_allocations_with_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(allocations, "ALLOCATION_BYTES", 1 << 20)
    draws = np.random.default_rng(0)
    weights = {f"W{i}": draws.standard_normal((SIZE, SIZE)).astype(np.float32) for i in range(3)}
    weights |= {f"b{i}": draws.standard_normal(SIZE).astype(np.float32) for i in range(3)}
    nodes = []
    for i in range(3):
        nodes += [
            node("MatMul", f"h{i} W{i}", f"p{i}"),
            node("Add", f"p{i} b{i}", f"q{i}"),
            node("Tanh", f"q{i}", f"h{i + 1}"),
        ]
    made = model(
        nodes, [value("h0", FLOAT, ("n", SIZE))], [value("h3", FLOAT, ("n", SIZE))], weights
    )
    platform = emulated.FakePlatform()
    (y,) = opened(made, platform).run(None, {"h0": X})
    (expected,) = tenonnx.InferenceSession(made, providers=["cpu"]).run(None, {"h0": X})
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)
    assert sum(entry[0] == "allocate" for entry in platform.log) == 1
