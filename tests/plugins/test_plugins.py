"""Plug-ins found, named in files and chosen, and what is said about them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tenonnx
from hooks import RELU, X
from tenonnx.plugins import manager as plugins_module


def transform_plugin(name: str, hook: str = "register_transforms") -> str:
    return f"""
@tenonnx.hookimpl
def {hook}(register):
    register(tenonnx.Transform({name!r}, lambda model, context: False))
"""


def records(plugins: tenonnx.PluginSet) -> dict[str, Any]:
    return {record.name: record for record in plugins.records}


def test_an_installed_plugin_is_found_after_the_built_in_ones(install: Callable[..., None]) -> None:
    install("aaa", transform_plugin("nothing"), version="2.5")
    plugins = tenonnx.PluginSet()
    assert plugins.records[0].distribution.startswith("tenonnx ")
    record = plugins.records[-1]
    assert (record.name, record.distribution) == ("aaa", "tenonnx-aaa 2.5")
    assert record.hooks == ("register_transforms",)
    assert record.registered == ["transform nothing"]
    assert record.error is None
    assert "nothing" in plugins.transforms


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("raise RuntimeError('no such chip')", "RuntimeError: no such chip"),
        ("import no_such_module_at_all", "ModuleNotFoundError: No module named 'no_such_module_a"),
        ("import sys; sys.exit('bye')", "SystemExit: bye"),
        ("def (:", "SyntaxError: "),
        ("x = 1", "'tenonnx_bad_bad' implements no hook\nHint: decorate its functions with tenon"),
        (
            transform_plugin("t", hook="register_transform"),
            "there is no hook 'register_transform'; did you mean 'register_transforms'?",
        ),
        (
            "@tenonnx.hookimpl\ndef register_transforms(regiser): ...",
            "its register_transforms takes regiser, and is called with register\nHint: arg",
        ),
        (
            "@tenonnx.hookimpl(wrapper=True)\ndef register_transforms(register): yield",
            "its register_transforms is a wrapper; there is nothing to wrap",
        ),
        (
            "@tenonnx.hookimpl\ndef register_transforms(register): 1 / 0",
            "ZeroDivisionError: division by zero",
        ),
    ],
    ids=[
        "raises",
        "import",
        "exit",
        "syntax",
        "no hook",
        "misspelt",
        "argument",
        "wrapper",
        "hook raises",
    ],
)
def test_a_broken_plugin_is_listed_and_stops_nobody(
    install: Callable[..., None], code: str, error: str
) -> None:
    install("bad", code)
    install("good", transform_plugin("nothing"))
    plugins = tenonnx.PluginSet()
    found = records(plugins)
    assert found["bad"].error.startswith(error)
    assert found["bad"].registered == []
    assert found["good"].error is None
    options = tenonnx.SessionOptions(plugins=plugins)
    assert tenonnx.InferenceSession(RELU, options).run(None, {"x": X})[0].tolist() == [0, 2]


LATER = """
@tenonnx.hookimpl
def register_providers(register):
    register(tenonnx.Provider.later("{place}", "LateExecutionProvider", "late"))
"""

LATE = """
import tenonnx
class Late(tenonnx.Provider):
    name, aliases, unasked = "LateExecutionProvider", ("late",), {unasked}
    def supports(self, node): return "nothing runs here"
    def compile(self, segment): return []
"""


def test_a_provider_that_is_announced_is_imported_for_those_who_ask(
    install: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "late_one.py").write_text(LATE.format(unasked=False))
    monkeypatch.syspath_prepend(tmp_path)
    install("aaa", LATER.format(place="late_one:Late"))
    plugins = tenonnx.PluginSet()
    options = tenonnx.SessionOptions(plugins=plugins)
    tenonnx.InferenceSession(RELU, options, providers=["cpu"])
    tenonnx.InferenceSession(RELU, options)
    assert "late_one" not in sys.modules
    assert plugins.knows("LATE")
    with pytest.raises(tenonnx.InvalidArgument, match="LateExecutionProvider"):
        plugins.provider("LateExecutionProviders")
    assert "late_one" not in sys.modules
    assert plugins.provider("late") is sys.modules["late_one"].Late
    assert plugins.providers["LateExecutionProvider"] is sys.modules["late_one"].Late


@pytest.mark.parametrize(
    ("place", "unasked", "message"),
    [
        ("late_two:Late", True, "announced as 'LateExecutionProvider'"),
        ("late_two:Later", False, "no attribute 'Later'"),
        ("late_two:tenonnx", False, "expected a subclass of tenonnx.Provider"),
        ("no_such_late:Late", False, "No module named 'no_such_late'"),
    ],
)
def test_a_provider_that_is_not_what_was_announced_is_set_aside(
    place: str,
    unasked: bool,
    message: str,
    install: Callable[..., None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "late_two.py").write_text(LATE.format(unasked=unasked))
    monkeypatch.syspath_prepend(tmp_path)
    install("aaa", LATER.format(place=place))
    plugins = tenonnx.PluginSet()
    with pytest.raises(tenonnx.InvalidArgument, match="unknown provider 'late'") as error:
        plugins.provider("late")
    assert message in str(error.value)
    assert message in (records(plugins)["aaa"].error or "")
    assert "LateExecutionProvider" not in plugins.providers
    assert "CPUExecutionProvider" in plugins.providers


def test_a_name_that_is_taken_is_an_error_that_names_both_distributions(
    install: Callable[..., None],
) -> None:
    install("one", transform_plugin("fast"), version="1.1")
    install("two", transform_plugin("also") + transform_plugin("FAST"), version="2.2")
    plugins = tenonnx.PluginSet()
    errors = [record.error for record in plugins.records if record.error]
    assert len(errors) == 1
    for part in ("'one' (tenonnx-one 1.1)", "'two' (tenonnx-two 2.2)", "TENONNX_BLOCK_PLUGINS="):
        assert part in errors[0]
    assert errors[0].startswith("the transform 'F") or errors[0].startswith("the transform 'f")


def test_two_plugins_of_one_name(install: Callable[..., None]) -> None:
    install("same", transform_plugin("a"), distribution="first", version="1.0")
    install("same", transform_plugin("b"), distribution="second", version="3.0")
    plugins = tenonnx.PluginSet()
    (error,) = [record.error for record in plugins.records if record.error]
    assert error.startswith("two plug-ins are named 'same': one of ")
    assert "first 1.0" in error
    assert "second 3.0" in error
    assert len({"a", "b"} & plugins.transforms.keys()) == 1


FILE_PLUGIN = """
from __future__ import annotations
from dataclasses import dataclass
import tenonnx

@dataclass
class Config:
    name: str = "from-file"

@tenonnx.hookimpl
def register_transforms(register):
    register(tenonnx.Transform(Config().name, lambda model, context: False))
"""


def test_a_plugin_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "my_own_plugin.py"
    path.write_text(FILE_PLUGIN)
    plugins = tenonnx.PluginSet()
    try:
        record = plugins.register_file(path)
    finally:
        sys.modules.pop(path.stem, None)
    assert (record.name, record.distribution) == ("my_own_plugin", str(path))
    assert "from-file" in plugins.transforms


def test_a_file_is_loaded_once(tmp_path: Path) -> None:
    path = tmp_path / "twice.py"
    path.write_text("import tenonnx\n" + transform_plugin("t"))
    plugins = tenonnx.PluginSet()
    try:
        plugins.register_file(path)
        with pytest.raises(tenonnx.PluginError, match="is loaded already"):
            plugins.register_file(path)
    finally:
        sys.modules.pop(path.stem, None)


def test_a_file_named_like_a_module_does_not_replace_it(tmp_path: Path) -> None:
    import json

    path = tmp_path / "json.py"
    path.write_text("import tenonnx\n" + transform_plugin("t"))
    tenonnx.PluginSet().register_file(path)
    assert sys.modules["json"] is json


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (None, "no plug-in file .*gone.py\nHint: give the path of a .py file"),
        ("1 / 0", "plug-in file .*gone.py failed: ZeroDivisionError: division by zero"),
        ("x = 1", "plug-in 'gone': 'gone' implements no hook"),
    ],
)
def test_a_file_that_is_no_plugin(tmp_path: Path, code: str | None, message: str) -> None:
    path = tmp_path / "gone.py"
    if code is not None:
        path.write_text(code)
    with pytest.raises(tenonnx.PluginError, match=message):
        tenonnx.PluginSet().register_file(path)
    assert "gone" not in sys.modules


@pytest.mark.parametrize(
    ("allow", "block", "loaded"),
    [
        (None, "", {"one", "two", "cpu"}),
        ("", "", {"cpu"}),
        (" one ,", "", {"one", "cpu"}),
        (None, "two, cpu", {"one"}),
        ("one,two", "one", {"two", "cpu"}),
    ],
)
def test_environment_variables_choose_plugins(
    install: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    allow: str | None,
    block: str,
    loaded: set[str],
) -> None:
    install("one", transform_plugin("a"))
    install("two", transform_plugin("b"))
    monkeypatch.delenv("TENONNX_PLUGINS", raising=False)
    if allow is not None:
        monkeypatch.setenv("TENONNX_PLUGINS", allow)
    monkeypatch.setenv("TENONNX_BLOCK_PLUGINS", block)
    monkeypatch.setattr(plugins_module, "_default", None)
    plugins = tenonnx.default_plugins()
    found = records(plugins)
    assert {name for name in ("one", "two", "cpu") if not found[name].error} == loaded
    for name in {"one", "two", "cpu"} - loaded:
        blocked = name in block
        assert found[name].error == (
            "blocked by TENONNX_BLOCK_PLUGINS"
            if blocked
            else "blocked by TENONNX_PLUGINS, which does not list it"
        )
    assert tenonnx.default_plugins() is plugins


def test_an_allow_list_that_names_nobody_is_told(install: Callable[..., None]) -> None:
    install("tracing", transform_plugin("a"))
    plugins = tenonnx.PluginSet(allow=["tracin"])
    error = records(plugins)["tracin"].error
    assert error.startswith("TENONNX_PLUGINS names it, but no such plug-in is installed")
    assert error.endswith("; did you mean 'tracing'?")


def test_a_plugin_for_another_version_of_the_api_is_set_aside(install: Callable[..., None]) -> None:
    install("newer", "tenonnx_api = 99\n" + transform_plugin("a"))
    install("older", "tenonnx_api = 0\n" + transform_plugin("b"))
    install("fits", "tenonnx_api = 1\n" + transform_plugin("c"))
    found = records(tenonnx.PluginSet())
    here = f"and tenonnx {tenonnx.__version__} has version 1"
    newer, older = (found[name].error for name in ("newer", "older"))
    assert newer == (
        f"it was written for version 99 of the plug-in API, {here}\nHint: update tenonnx"
    )
    assert older.endswith("\nHint: update the plug-in")
    assert (found["fits"].error, found["fits"].api) == (None, 1)


def test_a_plugin_that_keeps_everybody_waiting_is_named(
    install: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(plugins_module, "SLOW_SECONDS", 0.05)
    install("slow", "import time; time.sleep(0.4)\n" + transform_plugin("a"))
    record = records(tenonnx.PluginSet())["slow"]
    assert record.error is None
    assert record.load_seconds > 0.4
    assert [message for message in caplog.messages if "slow" in message] == [
        "plug-in 'slow' of tenonnx-slow 1.0 has been loading for 0.05 s; "
        "TENONNX_BLOCK_PLUGINS=slow does without it"
    ]


def test_a_file_that_keeps_everybody_waiting_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(plugins_module, "SLOW_SECONDS", 0.05)
    path = tmp_path / "slow_file.py"
    path.write_text("import tenonnx, time; time.sleep(0.4)\n" + transform_plugin("a"))
    record = tenonnx.PluginSet().register_file(path)
    del sys.modules[path.stem]
    assert record.load_seconds > 0.4
    assert any(f"plug-in 'slow_file' of {path} has been loading" in m for m in caplog.messages)


def test_calls_of_hooks_can_be_traced(
    install: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    install("traced", transform_plugin("a"))
    with caplog.at_level("DEBUG", "tenonnx.hooks"):
        tenonnx.PluginSet()
    assert any(m.startswith("register_transforms of plug-in traced took ") for m in caplog.messages)


def test_idle_plugins_cost_a_run_nothing(install: Callable[..., None]) -> None:
    """The plan is the same code, and no hook is called while it runs."""
    plain = tenonnx.InferenceSession(RELU)
    for number in range(10):
        install(f"idle{number}", transform_plugin(f"idle-{number}") + OBSERVING_NOTHING)
    plugins = tenonnx.PluginSet()
    session = tenonnx.InferenceSession(RELU, tenonnx.SessionOptions(plugins=plugins))
    module = sys.modules["tenonnx_idle3_idle3"]
    asked = module.asked
    session.run(None, {"x": X})
    assert module.asked == asked == 0
    assert session.plan.source == plain.plan.source


OBSERVING_NOTHING = """
asked = 0

@tenonnx.hookimpl
def create_observer(plan):
    global asked
    asked += 1
"""
