"""Steps that return before they have finished, on devices that a thread each stands for."""

from __future__ import annotations

import gc
import queue
import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

import numpy as np
import onnx.parser
import pytest

import tenonnx
from hooks import Providers
from tenonnx import OrtValue, Provider, Step
from tenonnx.planning.device_arrays import ExposesArrays

PATIENCE_SECONDS = 60.0
"""Longer than any wait of a test that passes."""


class Done:
    """The event of a piece of work."""

    def __init__(self) -> None:
        self._done, self.error = threading.Event(), None

    def finish(self, error: BaseException | None) -> None:
        self.error = error
        self._done.set()

    def wait(self) -> None:
        assert self._done.wait(PATIENCE_SECONDS)
        if self.error is not None:
            raise self.error


class Later:
    """An array that is made some time; its memory is poisoned when it is freed."""

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.memory = np.full(shape, 99, dtype)
        self.event = Done()
        self.shape, self.dtype, self.nbytes = shape, dtype, self.memory.nbytes

    def __del__(self) -> None:
        self.memory.fill(77)


class Simulated(ExposesArrays):
    """A device: a thread does one piece of work after the other, after a while."""

    def __init__(self, name: str) -> None:
        self.id, self.gate = name, threading.Event()
        self.gate.set()
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._loop, daemon=True)
        self._thread.start()
        self.downloads = 0

    def _loop(self) -> None:
        draws = random.Random(0)
        while (work := self._work.get()) is not None:
            assert self.gate.wait(PATIENCE_SECONDS)
            time.sleep(draws.choice((0, 0, 1e-4, 1e-3)))
            work()
            del work

    def stop(self) -> None:
        self._work.put(None)
        self._thread.join()

    def start(self, function: Callable[..., Any], *inputs: Later) -> Later:
        """Begin with a step: an array that is there when it is done."""
        out = Later(np.broadcast_shapes(*(x.shape for x in inputs)), inputs[0].dtype)
        memory, event = out.memory, out.event

        def work() -> None:
            error = next((x.event.error for x in inputs if x.event.error), None)
            try:
                if error is None:
                    memory[...] = function(*(x.memory for x in inputs))
            except Exception as raised:
                error = raised
            event.finish(error)

        out.work = work  # the device's memory stays while work on it is underway
        self._work.put(lambda held=out: held.__dict__.pop("work")())
        return out

    def upload(self, array: Any) -> Later:
        there = Later(array.shape, array.dtype)
        there.memory[...] = array
        there.event.finish(None)
        return there

    def download(self, array: Later) -> Any:
        self.downloads += 1
        return array.memory.copy()


FUNCTIONS = {"Neg": np.negative, "Add": np.add, "Mul": np.multiply, "Exp": np.exp}


def provider_of(device: Simulated, *operators: str) -> type[Provider]:
    class Simulating(Provider):
        name = f"{device.id.capitalize()}ExecutionProvider"
        aliases = (device.id,)
        unasked = False
        functions: ClassVar[dict[str, Any]] = {name: FUNCTIONS[name] for name in operators}

        def supports(self, node: Any) -> Any:
            return node.op_type in self.functions or "another operator"

        def compile(self, segment: Any) -> Any:
            return [self.step(node) for node in segment.nodes]

        def step(self, node: Any) -> Step:
            function = self.functions[node.op_type]

            def call(*inputs: Later) -> Later:
                return device.start(function, *inputs)

            return Step(call, node.inputs, node.outputs, (node,), device=device)

    Simulating.device = device
    return Simulating


@pytest.fixture
def devices() -> Iterator[tuple[Simulated, Simulated]]:
    made = Simulated("one"), Simulated("two")
    yield made
    for device in made:
        device.stop()


MODEL = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["": 21]>
    g (float[n] x) => (float[n] y, float[n] a2) {
        a = Neg(x)  a2 = Neg(a)  b = Mul(x, x)  b2 = Mul(b, b)  h = Sin(a2)  s = Add(b2, h)
        y = Exp(s)
    }
""")


def opened(devices: tuple[Simulated, Simulated], **options: Any) -> tenonnx.InferenceSession:
    one, two = devices
    plugins = tenonnx.PluginSet()
    plugins.register(Providers(provider_of(one, "Neg", "Exp"), provider_of(two, "Mul", "Add")))
    given = tenonnx.SessionOptions(plugins=plugins, **options)
    return tenonnx.InferenceSession(MODEL, given, providers=["one", "two", "cpu"])


def expected(x: Any) -> Any:
    return np.exp(np.float32(x**4) + np.sin(x)), x


def test_values_are_right_under_races(devices: tuple[Simulated, Simulated]) -> None:
    session = opened(devices)

    def check(seed: int) -> None:
        x = np.random.default_rng(seed).uniform(-1, 1, 1 + seed % 7).astype(np.float32)
        given = x.copy()
        found = session.run(None, {"x": given})
        given.fill(55)  # the caller's memory is the caller's again
        for a, b in zip(found, expected(x), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(check, range(200)))


def test_checked_runs_wait_for_each_step(devices: tuple[Simulated, Simulated]) -> None:
    x = np.float32([0.5, -0.5])
    found = opened(devices, check=True).run(None, {"x": x})
    np.testing.assert_allclose(found[0], expected(x)[0], rtol=1e-6)


def test_steps_of_both_devices_are_underway_at_once(devices: tuple[Simulated, Simulated]) -> None:
    """The first device does nothing before the second one has done its part."""
    one, two = devices
    session, start = opened(devices), two.start
    one.gate.clear()

    def opening(function: Any, *inputs: Later) -> Later:
        out = start(function, *inputs)
        if function is np.multiply:
            one.gate.set()
        return out

    two.start = opening  # type: ignore[method-assign]
    x = np.float32([0.25])
    np.testing.assert_allclose(session.run(None, {"x": x})[0], expected(x)[0], rtol=1e-6)


def test_a_run_returns_before_its_outputs_are_there(devices: tuple[Simulated, Simulated]) -> None:
    one, _ = devices
    chain = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["": 21]>
        g (float[n] x) => (float[n] y) { h = Neg(x)  y = Exp(h) }
    """)
    plugins = tenonnx.PluginSet()
    plugins.register(Providers(provider_of(one, "Neg", "Exp")))
    options = tenonnx.SessionOptions(plugins=plugins)
    session = tenonnx.InferenceSession(chain, options, providers=["one"])
    value = OrtValue(one.upload(np.float32([0.5])), one)
    one.gate.clear()
    for _ in range(3):  # each run reads what the last one has not made yet
        (value,) = session.run_with_ort_values(None, {"x": value})
        assert value.device_name() == "one"
    assert one.downloads == 0
    gc.collect()
    one.gate.set()
    right = np.float32([0.5])
    for _ in range(3):
        right = np.exp(-right)
    np.testing.assert_allclose(np.from_dlpack(value), right, rtol=1e-6)
    np.testing.assert_allclose(value.numpy(), right, rtol=1e-6)


def test_what_the_work_raises_names_its_step(
    devices: tuple[Simulated, Simulated], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> Any:
        raise ZeroDivisionError("by the work")

    monkeypatch.setitem(FUNCTIONS, "Mul", broken)
    session = opened(devices)
    with pytest.raises(tenonnx.RuntimeException, match="by the work") as raised:
        session.run(None, {"x": np.float32([1])})
    assert str(raised.value).startswith("Add 's' (ai.onnx, opset 21) on TwoExecutionProvider")
    with pytest.raises(tenonnx.RuntimeException, match=r"Mul 'b' .* by the work"):
        opened(devices, check=True).run(None, {"x": np.float32([1])})
