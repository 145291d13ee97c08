"""A wrong plan is never used: each thing that one depends on is changed."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from plan_models import (
    LAYERS,
    answers,
    assert_same,
    is_kept,
    model_of,
    opened,
    options,
    replaced,
    saved,
)

import tenonnx
from tenonnx.plan_cache.key import state_of


def touched(path: Path) -> None:
    """Write the same model into the same file."""
    path.write_bytes(path.read_bytes())


CHANGES: dict[str, Callable[[Path, pytest.MonkeyPatch], dict[str, Any]]] = {
    "another model": lambda path, _: replaced(path, LAYERS.replace("Tanh", "Sigmoid")) or {},
    "the file was written": lambda path, _: touched(path) or {},
    "its time": lambda path, _: os.utime(path, (1, 1)) or {},
    "the level": lambda _, __: options(graph_optimization_level=1),
    "threads": lambda _, __: options(intra_op_num_threads=1),
    "a transform less": lambda _, __: options(disabled_transforms=["fold-constants"]),
    "a transform less, by name": lambda _, __: {"disabled_optimizers": ["fold-constants"]},
    "an entry": lambda _, __: entries("session.disable_prepacking", "1"),
    "a dimension": lambda _, __: sizes("n", 2),
    "providers": lambda _, __: {"providers": None},
    "provider options": lambda _, __: {
        "providers": [("cpu", {"arena_extend_strategy": "kSameAsRequested"})]
    },
    "a variable": lambda _, patch: patch.setenv("TENONNX_PROCESSOR", "native") or {},
    "Python": lambda _, patch: patch.setattr(sys, "version", "another") or {},
    "Python's -O": lambda _, patch: patch.setattr("tenonnx.plan_cache.key.OPTIMIZED", 2) or {},
    "numpy": lambda _, patch: patch.setattr(np, "__version__", "0.0") or {},
    "plug-ins": lambda path, patch: installed(path.parent, patch, "more-1.0"),
    "a version of something else": lambda path, patch: installed(path.parent, patch, "onnx-0.0"),
    "code": lambda _, patch: another_code(patch),
    "the processor": lambda _, patch: another_machine(patch),
    "kernels": lambda _, patch: other_kernels(patch),
}


def entries(key: str, value: str) -> dict[str, Any]:
    """Return session options with an entry."""
    made = tenonnx.SessionOptions()
    made.add_session_config_entry(key, value)
    return {"sess_options": made}


def sizes(name: str, size: int) -> dict[str, Any]:
    """Return session options that fix a dimension."""
    made = tenonnx.SessionOptions()
    made.add_free_dimension_override_by_name(name, size)
    return {"sess_options": made}


def installed(folder: Path, patch: pytest.MonkeyPatch, name: str) -> dict[str, Any]:
    """Have one more distribution installed."""
    info = folder / f"{name}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Name: {}\nVersion: {}\n".format(*name.split("-")))
    (info / "entry_points.txt").write_text("[tenonnx]\nmore = json\n")
    patch.syspath_prepend(folder)
    return {}


def another_code(patch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Have a plug-in's file changed before the process began."""
    from tenonnx.plan_cache import key

    plain = key.state_of_code
    patch.setattr(key, "state_of_code", lambda *which: plain(*which) + "changed")
    return {}


def another_machine(patch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Have another library of kernels."""
    from tenonnx_cpu.jit import library

    patch.setattr(library, "fingerprint", lambda: "another")
    return {}


def other_kernels(patch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Have kernels where there were none, or none where there were."""
    from tenonnx_cpu import provider

    found = provider.has_kernels()
    patch.setattr(provider, "has_kernels", lambda: not found)
    return {}


@pytest.mark.parametrize("change", CHANGES)
def test_a_wrong_plan_is_never_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    path = saved(tmp_path / "model.onnx")
    opened(path)
    assert is_kept(opened(path))
    how = CHANGES[change](path, monkeypatch)
    assert not is_kept(opened(path, **how))


def test_a_file_that_is_written_twice_in_a_tick_of_the_clock(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    states = set()
    for number in range(20):
        path.write_bytes(bytes([number]))
        states.add(state_of(path))
    assert len(states) == 20


def test_external_data_that_changed(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(model_of(LAYERS), path, save_as_external_data=True, location="data", size_threshold=0)
    first = opened(path)
    second = opened(path)
    assert is_kept(second)
    assert_same(answers(second), answers(first))
    data = tmp_path / "data"
    data.write_bytes(data.read_bytes()[::-1])
    third = opened(path)
    assert not is_kept(third)


def test_what_is_the_process_s_is_not_kept(tmp_path: Path) -> None:
    path = saved(tmp_path / "model.onnx")

    def observed() -> dict[str, Any]:
        made = tenonnx.SessionOptions()
        made.enable_profiling = True
        made.profile_file_prefix = str(tmp_path / "profile")
        return {"sess_options": made}

    def custom() -> dict[str, Any]:
        made = tenonnx.SessionOptions()
        made.operator("my.domain::Own")(lambda x: x)
        return {"sess_options": made}

    def limited() -> dict[str, Any]:
        return options(time_limit=60.0)

    def plugins() -> dict[str, Any]:
        return options(plugins=tenonnx.PluginSet())

    def weights() -> dict[str, Any]:
        return options(weights=tenonnx.WeightRegistry())

    for how in (observed, custom, limited, plugins, weights):
        for _ in range(2):
            assert not is_kept(opened(path, **how())), how.__name__
    content = path.read_bytes()
    for _ in range(2):
        assert not is_kept(tenonnx.InferenceSession(content, providers=["cpu"]))


def test_plug_ins_that_the_program_registers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tenonnx.plugins import manager

    path = saved(tmp_path / "model.onnx")
    opened(path)
    plugins = tenonnx.PluginSet()
    monkeypatch.setattr(manager, "_default", plugins)
    assert is_kept(opened(path))
    seen = []

    class Commands:
        """Has subcommands alone."""

        @tenonnx.hookimpl
        def register_commands(self, register: Any) -> None:
            del register

    plugins.register(Commands(), "commands")
    assert is_kept(opened(path))

    class Plugin:
        """Observes plans."""

        @tenonnx.hookimpl
        def create_observer(self, plan: Any) -> None:
            seen.append(plan)

    plugins.register(Plugin(), "own")
    for number in range(2):
        assert not is_kept(opened(path))
        assert len(seen) == number + 1
