"""The command as a process of its own: streams, signals, imports."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import onnx
import pytest
from small import Start, Write

import tenonnx
from models import FLOAT, model, node, value

TIMEOUT = 120

WAIT = """
import signal
import time
import typer
from tenonnx import hookimpl

app = typer.Typer()

@app.command()
def wait():
    # Whoever runs the tests in the background has them ignore it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    print("ready", flush=True)
    time.sleep(60)

@hookimpl
def register_commands(register):
    register(app)
"""


def on_a_terminal(start: Start, *arguments: object, **environment: str) -> str:
    """Run the command on a terminal; return what appears there."""
    ours, theirs = pty.openpty()
    environment = {"TERM": "xterm-256color", "NO_COLOR": "", "COLUMNS": "100", **environment}
    process = start(*arguments, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    shown = b""
    try:
        while chunk := os.read(ours, 4096):
            shown += chunk
    except OSError:
        pass  # Linux says EIO when the other side is closed
    os.close(ours)
    process.wait(TIMEOUT)
    return shown.decode()


def test_version(start: Start) -> None:
    out, err = start("--version").communicate(timeout=TIMEOUT)
    assert (out.decode(), err) == (f"tenonnx {tenonnx.__version__}\n", b"")


def test_importing_the_command_imports_no_libraries() -> None:
    heavy = ["typer", "rich", "numpy", "onnx"]
    code = f"import sys, tenonnx.cli; print([m for m in {heavy} if m in sys.modules])"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    shown = subprocess.check_output([sys.executable, "-c", code], env=environment, timeout=TIMEOUT)
    assert shown.decode() == "[]\n"


def test_interrupts_are_quiet(start: Start, write: Write) -> None:
    with start("--plugin", write("wait.py", WAIT), "wait") as process:
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=TIMEOUT)
    assert (process.returncode, out, err) == (130, b"", b"")


def test_broken_pipes_are_quiet(start: Start, folder: Path) -> None:
    count = 3000
    nodes = [node("Neg", f"v{i}", f"v{i + 1}") for i in range(count)]
    proto = model(nodes, [value("v0", FLOAT, [1])], [value(f"v{count}", FLOAT, [1])])
    onnx.save(proto, folder / "long.onnx")
    with start("inspect", "long.onnx", "--nodes") as process:
        assert process.stdout.readline() == b"model:      long.onnx\n"
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(TIMEOUT) == 141


def test_progress_and_colors_are_for_terminals(start: Start, mlp: str) -> None:
    command = ("bench", mlp, "-p", "cpu", "--seconds", "0.3")
    shown = on_a_terminal(start, *command)
    assert "running in turn" in shown
    assert "\x1b[" in shown
    out, err = start(*command).communicate(timeout=TIMEOUT)
    assert b"\x1b" not in out + err
    assert err.decode().splitlines() == ["loading for cpu", "warming up", "running in turn"]


def test_no_color_is_honored(start: Start) -> None:
    red = "\x1b[1;31m"
    assert red in on_a_terminal(start, "run", "gone.onnx")
    plain = on_a_terminal(start, "run", "gone.onnx", NO_COLOR="1")
    assert red not in plain
    assert "there is no model at gone.onnx" in plain


def test_providers_and_models_are_completed(start: Start, mlp: str, folder: Path) -> None:
    (folder / "models").mkdir()
    (folder / "mlp.npz").touch()

    def offered(line: str) -> list[str]:
        environment = {
            "_TENONNX_COMPLETE": "complete_bash",
            "COMP_WORDS": line,
            "COMP_CWORD": str(line.count(" ")),
        }
        out, _ = start(env=environment).communicate(timeout=TIMEOUT)
        return sorted(out.decode().split())

    assert offered("tenonnx run m") == [mlp, "models/"]
    assert offered("tenonnx bench m.onnx -p on") == ["onnxruntime"]
    assert {"cpu", "CPUExecutionProvider"} <= {*offered("tenonnx run m.onnx -p cpu"), *offered(
        "tenonnx run m.onnx -p CPUE"
    )}  # fmt: skip
    assert offered("tenonnx profile m.onnx --level e") == ["extended"]


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_terminals_of_any_width_break_no_word(start: Start, mlp: str, columns: int) -> None:
    environment = {"COLUMNS": str(columns), "NO_COLOR": "1", "TERM": "dumb"}
    rows = on_a_terminal(start, "providers", **environment).splitlines()
    assert max(map(len, rows)) <= columns
    words = {word for row in rows for word in row.split()}
    assert {"provider", "CPUExecutionProvider", "OpenVINOExecutionProvider", "usable"} <= words
    refused = on_a_terminal(start, "run", mlp, "-i", "z=random", **environment).splitlines()
    assert max(map(len, refused)) <= columns
    assert " ".join(refused).startswith("error: the model has no input 'z'")


def test_pipes_are_100_columns_wide_or_as_told(start: Start) -> None:
    def rows(**environment: str) -> list[str]:
        out, _ = start("providers", env=environment).communicate(timeout=TIMEOUT)
        return out.decode().splitlines()

    assert 80 < max(map(len, rows(COLUMNS=""))) <= 100
    assert max(map(len, rows(COLUMNS="60"))) <= 60
