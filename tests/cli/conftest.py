from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import onnx
import pytest
from small import Cli, Start, Write, mlp_model
from typer.testing import CliRunner, Result

from models import FLOAT, model, node, value
from tenonnx.cli.app import app
from tenonnx.cli.state import BLOCKED
from tenonnx.plugins.manager import OBSERVE
from tenonnx.weights import registry as weights


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Run the command in this process, where it finds what a process of its own would find."""
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments: object) -> Result:
        monkeypatch.setattr("tenonnx.plugins.manager._default", None)
        weights._default_registry.cache_clear()
        monkeypatch.setenv(BLOCKED, "")
        monkeypatch.setenv(OBSERVE, "")
        texts = [str(argument) for argument in arguments]
        return CliRunner().invoke(app, texts, prog_name="tenonnx")

    return run


@pytest.fixture
def start() -> Start:
    """Start the command as a process of its own."""

    def popen(*arguments: object, **options: Any) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        environment |= options.pop("env", {})
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
        command = [sys.executable, "-m", "tenonnx", *map(str, arguments)]
        return subprocess.Popen(command, env=environment, **options)

    return popen


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory."""
    place = tmp_path / "work"
    place.mkdir()
    monkeypatch.chdir(place)
    return place


@pytest.fixture
def mlp(folder: Path) -> str:
    """Two layers and the index of the greatest output."""
    onnx.save(mlp_model(), folder / "mlp.onnx")
    return "mlp.onnx"


@pytest.fixture
def foreign(folder: Path) -> str:
    """A model with an operator that only a plug-in can bring."""
    proto = model(
        [node("Plus", "x", "y", domain="my.domain")],
        [value("x", FLOAT, ["n"])],
        [value("y", FLOAT, ["n"])],
        domains={"my.domain": 1},
    )
    onnx.save(proto, folder / "foreign.onnx")
    return "foreign.onnx"


@pytest.fixture
def write(folder: Path) -> Write:
    """Write a file; return its name."""

    def write_file(name: str, text: str) -> str:
        (folder / name).write_text(textwrap.dedent(text))
        return name

    return write_file


@pytest.fixture
def double(write: Write) -> str:
    """A plug-in whose provider ``slow`` adds only, slowly, and 1 too much."""
    return write(
        "double.py",
        """
        import time
        from dataclasses import dataclass
        from tenonnx import Provider, Step, hookimpl

        @dataclass
        class Options:
            milliseconds: float = 20.0

        class Slow(Provider):
            name = "SlowExecutionProvider"
            aliases = ("slow",)
            Options = Options

            def supports(self, node):
                return True if node.op_type == "Add" else f"adds only, and does not {node.op_type}"

            def compile(self, segment):
                return [self.step(node) for node in segment.nodes]

            def step(self, node):
                def call(a, b):
                    time.sleep(self.options.milliseconds / 1000)
                    return a + b + 1
                return Step(call, tuple(node.inputs), tuple(node.outputs), (node,))

        class Gone(Slow):
            name = "GoneExecutionProvider"
            aliases = ("gone",)
            Options = None

            @classmethod
            def check(cls):
                return "there is no such device; buy one"

        @hookimpl
        def register_providers(register):
            register(Slow)
            register(Gone)
        """,
    )


@pytest.fixture
def adder(folder: Path) -> str:
    """``y = -(x + x)``."""
    proto = model(
        [node("Add", "x x", "a"), node("Neg", "a", "y")],
        [value("x", FLOAT, ["n"])],
        [value("y", FLOAT, ["n"])],
    )
    onnx.save(proto, folder / "adder.onnx")
    return "adder.onnx"
