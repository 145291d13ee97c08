"""Plug-ins that observe runs and read formats: off until asked for, and no hindrance to others."""

from __future__ import annotations

import pytest

import tenonnx
from hooks import RELU, Formats


def test_an_installed_observer_is_off_until_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Counting:
        asked = 0

        @tenonnx.hookimpl
        def create_observer(self, plan: tenonnx.Plan) -> None:
            self.asked += len(plan.steps)

    plugins, counting = tenonnx.PluginSet(), Counting()
    plugins.register(counting, "counting").given = False  # as of an installed distribution
    monkeypatch.delenv("TENONNX_OBSERVE", raising=False)
    tenonnx.InferenceSession(RELU, tenonnx.SessionOptions(plugins=plugins))
    assert counting.asked == 0
    asked = tenonnx.SessionOptions(plugins=plugins, observers=["counting"])
    tenonnx.InferenceSession(RELU, asked)
    monkeypatch.setenv("TENONNX_OBSERVE", "counting")
    tenonnx.InferenceSession(RELU, tenonnx.SessionOptions(plugins=plugins))
    assert counting.asked == 2
    unknown = tenonnx.SessionOptions(plugins=plugins, observers=["countings"])
    with pytest.raises(tenonnx.InvalidArgument, match="'countings' has an observer; did you mean"):
        tenonnx.InferenceSession(RELU, unknown)


def test_an_observer_that_observes_nothing_is_named() -> None:
    class Counting:
        @tenonnx.hookimpl
        def create_observer(self, plan: tenonnx.Plan) -> int:
            return len(plan.steps)

    plugins = tenonnx.PluginSet()
    plugins.register(Counting())
    with pytest.raises(tenonnx.PluginError, match=r"'Counting' failed .* expected a tenonnx\.Obs"):
        tenonnx.InferenceSession(RELU, tenonnx.SessionOptions(plugins=plugins))


def test_a_format_that_cannot_tell_its_files_stops_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def sniff(header: bytes) -> bool:
        raise IndexError(f"{len(header)} bytes are too few")

    plugins = tenonnx.PluginSet()
    plugins.register(Formats(tenonnx.Format("odd", lambda *_: None, sniff)))  # type: ignore[arg-type,return-value] # it is not called
    options = tenonnx.SessionOptions(plugins=plugins)
    assert tenonnx.InferenceSession(RELU.SerializeToString(), options).get_inputs()
    assert any("format 'odd' cannot tell its files: IndexError" in m for m in caplog.messages)
