"""The servers that are measured, each in a process of its own."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from bench.serve.report import BARE, KSERVE, MINE
from tenonnx_cpu.jit.library import KERNELS_VARIABLE, kernels_folder

ROOT = Path(__file__).parents[2]
PRODUCTS = sorted(ROOT.glob("plugins/*/src"))
START_SECONDS = 60
READY = re.compile(r"REST on http://[^:]+:(\d+), gRPC on [^:]+:(\d+)")


@dataclass(frozen=True)
class Contender:
    """A server that answers.

    Attributes:
        name: Of the table.
        ports: By kind of request.
        pid: Of the process that was started.
    """

    name: str
    ports: dict[str, int]
    pid: int


@contextlib.contextmanager
def process(command: list[str], name: str) -> Iterator[Contender]:
    """Run a server that says in its first lines which ports it has."""
    folders = [*(ROOT / part for part in ("core", "providers", "plugins")), *PRODUCTS, ROOT]
    path = os.pathsep.join(map(str, folders))
    environment = {**os.environ, KERNELS_VARIABLE: kernels_folder()}
    if name != KSERVE:
        environment["PYTHONPATH"] = path
    with (
        tempfile.TemporaryFile("w+") as told,
        subprocess.Popen(command, stdout=told, stderr=told, text=True, env=environment) as started,
    ):
        try:
            yield Contender(name, _ports(started, told), started.pid)
        finally:
            started.terminate()
            try:
                started.wait(10)
            except subprocess.TimeoutExpired:
                started.kill()


def _ports(started: subprocess.Popen[str], told: IO[str]) -> dict[str, int]:
    """Return a server's ports once it has told them."""
    end = time.monotonic() + START_SECONDS
    while started.poll() is None and time.monotonic() < end:
        time.sleep(0.2)
        told.seek(0)
        text = told.read()
        if found := READY.search(text) or re.search(r"^(\d+) (\d+)$", text, re.M):
            return {"http": int(found[1]), "grpc": int(found[2])}
    raise RuntimeError(f"a server did not start:\n{text}")


def tenonnx(
    model: Path, *options: str, name: str = MINE
) -> contextlib.AbstractContextManager[Contender]:
    """Return this package's server, of one worker if the options do not say otherwise."""
    named = [] if model.is_dir() else ["--name", "m"]
    serve = ["-m", "tenonnx", "serve", str(model), *named, "--port", "0"]
    more = ["--grpc-port", "0", "--provider", "CPUExecutionProvider", *options]
    return process([sys.executable, *serve, *more], name)


def bare(model: Path) -> contextlib.AbstractContextManager[Contender]:
    """Return a server that checks nothing."""
    return process([sys.executable, "-m", "bench.serve.bare", str(model)], BARE)


def kserve(python: str) -> contextlib.AbstractContextManager[Contender]:
    """Return KServe's server, in an environment that has it."""
    return process([python, str(Path(__file__).with_name("with_kserve.py"))], KSERVE)
