"""The module's facts about itself, and its settings."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import tenonnx
from models import model, node, value
from tenonnx.interface.named_devices import find_device
from tenonnx.options import PROCESS_DEFAULTS


def test_facts(capsys: pytest.CaptureFixture[str]) -> None:
    assert tenonnx.get_device() in ("CPU", "GPU")
    assert tenonnx.get_version_string() == tenonnx.__version__
    assert tenonnx.__version__ in tenonnx.get_build_info()
    assert tenonnx.has_collective_ops() is False
    (cpu,) = [d for d in tenonnx.get_ep_devices() if d.ep_name == "CPUExecutionProvider"]
    assert (cpu.ep_vendor, cpu.device.type) == ("cpu", tenonnx.OrtHardwareDeviceType.CPU)
    assert cpu.memory_info(tenonnx.OrtDeviceMemoryType.DEFAULT).name == "Cpu"
    with pytest.raises(tenonnx.NotSupported):
        cpu.create_sync_stream()
    tenonnx.print_debug_info()
    assert "CPUExecutionProvider" in capsys.readouterr().out


@pytest.mark.parametrize(("severity", "level"), [(0, 10), (2, 30), (4, 50)])
def test_severity_is_the_loggers_level(severity: int, level: int) -> None:
    logger = logging.getLogger("tenonnx")
    before = logger.level
    try:
        tenonnx.set_default_logger_severity(severity)
        assert logger.level == level
        with pytest.raises(tenonnx.InvalidArgument, match="from 0"):
            tenonnx.set_default_logger_severity(5)
    finally:
        logger.setLevel(before)


def test_providers_of_devices_come_first_and_others_behind_the_cpus(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class OnCpu(tenonnx.Provider):
        name = "OnCpu"
        device: Any = SimpleNamespace(id="torch")

        def supports(self, node: Any) -> str:
            return f"not {node}"

        def compile(self, segment: Any) -> list[Any]:
            return [segment]

    class OnGpu(OnCpu):
        name = "OnGpu"
        device: Any = SimpleNamespace(id="cuda")

    class Plugin:
        def __init__(self, provider: Any) -> None:
            self.provider = provider

        @tenonnx.hookimpl
        def register_providers(self, register: Any) -> None:
            register(self.provider)

    plugins = tenonnx.PluginSet(allow=(), block=("cuda", "jax", "openvino", "torch"))
    monkeypatch.setattr("tenonnx.plugins.manager._default", plugins)
    plugins.register(Plugin(OnCpu), "host")
    assert tenonnx.get_device() == "CPU"
    plugins.register(Plugin(OnGpu), "device")
    assert tenonnx.get_device() == "GPU"
    assert tenonnx.get_available_providers() == ["OnGpu", "CPUExecutionProvider", "OnCpu"]


def test_threads_of_the_process() -> None:
    proto = model([node("Relu", "x", "y")], [value("x")], [value("y")])
    try:
        tenonnx.set_global_thread_pool_sizes(1, 1)
        session = tenonnx.InferenceSession(proto)
        assert session.get_session_options().intra_op_num_threads == 1
        options = tenonnx.SessionOptions(intra_op_num_threads=2)
        session = tenonnx.InferenceSession(proto, options)
        assert session.get_session_options().intra_op_num_threads == 2
    finally:
        PROCESS_DEFAULTS["intra_op_num_threads"] = 0


@pytest.mark.parametrize(
    "call",
    [
        tenonnx.enable_telemetry_events,
        tenonnx.disable_telemetry_events,
        tenonnx.preload_dlls,
        lambda: tenonnx.set_default_logger_verbosity(1),
        lambda: tenonnx.create_and_register_allocator(None, tenonnx.OrtArenaCfg()),
        lambda: tenonnx.create_and_register_allocator_v2("x", None, {}, None),
    ],
)
def test_what_has_no_effect_does_no_harm(call: Any) -> None:
    assert call() is None


def test_libraries_of_providers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plugins = tenonnx.PluginSet()
    monkeypatch.setattr("tenonnx.plugins.manager._default", plugins)
    with pytest.raises(tenonnx.NotSupported, match="a provider is a Python class"):
        tenonnx.register_execution_provider_library("Mine", "mine.so")
    file = tmp_path / "mine_provider.py"
    file.write_text(
        "import tenonnx\n"
        "class Mine(tenonnx.Provider):\n"
        "    name = 'MineExecutionProvider'\n"
        "    def supports(self, node): return 'never'\n"
        "    def compile(self, segment): return []\n"
        "@tenonnx.hookimpl\n"
        "def register_providers(register): register(Mine)\n"
    )
    tenonnx.register_execution_provider_library("Mine", str(file))
    assert "MineExecutionProvider" in plugins.providers
    with pytest.raises(tenonnx.PluginError, match="stays registered"):
        tenonnx.unregister_execution_provider_library("Mine")


@pytest.mark.parametrize(
    "name", ["ModelCompiler", "OrtEpContextData", "OrtExternalInitializerInfo", "OrtSyncStream"]
)
def test_refused_classes_say_why(name: str) -> None:
    with pytest.raises(tenonnx.NotSupported, match=f"{name}: "):
        getattr(tenonnx, name)("anything")


def test_a_device_is_made_once_while_somebody_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[None] = []

    def choose(*_: Any) -> list[Any]:
        made.append(None)
        return [SimpleNamespace(device=type("Device", (), {"id": "cuda:0"})())]

    monkeypatch.setattr("tenonnx.interface.named_devices.why_unusable", lambda _: None)
    monkeypatch.setattr("tenonnx.plugins.choosing.choose_providers", choose)
    first = find_device("cuda")
    assert find_device("cuda", 0) is first
    assert find_device("cuda", 1) is not first
    assert len(made) == 2
    del first
    find_device("cuda")
    assert len(made) == 3


@pytest.fixture
def unlogged() -> Iterator[logging.Logger]:
    logger = logging.getLogger("tenonnx")
    level = logger.level
    yield logger
    tenonnx.set_default_logger_callback(None)
    logger.setLevel(level)


def test_a_callback_gets_messages(unlogged: logging.Logger) -> None:
    got: list[tuple[Any, ...]] = []
    child = logging.getLogger("tenonnx.some.part")
    tenonnx.set_default_logger_callback(lambda *message: got.append(message), 1)
    child.debug("no")
    child.info("one %d", 1)
    child.log(logging.CRITICAL + 5, "two")
    tenonnx.set_default_logger_callback(None, 4)
    child.info("three")
    assert [(severity, name, text) for severity, name, _, _, text in got] == [
        (1, "tenonnx.some.part", "one 1"),
        (4, "tenonnx.some.part", "two"),
    ]
    assert "test_runtime_info.py" in got[0][3]
    assert unlogged.level == logging.INFO, "None leaves the severity"


def test_a_callback_that_fails_or_logs(
    unlogged: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    def callback(*message: Any) -> None:
        unlogged.warning("again")
        raise ValueError(f"bad {message[-1]}")

    tenonnx.set_default_logger_callback(callback)
    unlogged.warning("text")
    assert "ValueError: bad text" in capsys.readouterr().err


def test_callbacks_that_are_none() -> None:
    with pytest.raises(tenonnx.InvalidArgument, match="a callback is a function or None"):
        tenonnx.set_default_logger_callback("print")  # type: ignore[arg-type]  # on purpose
    with pytest.raises(tenonnx.InvalidArgument, match="a severity goes from 0"):
        tenonnx.set_default_logger_callback(None, 5)
