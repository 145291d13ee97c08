"""Servers as programs of their own, which tests start, ask and end."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sources import SOURCES

PATHS = [str(folder) for folder in SOURCES]


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
    return port


def answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(address, timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def posted(address: str, body: object, kind: str = "application/json") -> tuple[int, Any]:
    """Return the status of an answer, and what it says: of status 200, what its JSON means."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(address, data, {"Content-Type": kind})
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


@contextlib.contextmanager
def running(command: list[str], folder: Path, ready: str) -> Iterator[int]:
    """Run a server until the block ends; it has begun when an address answers."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([*PATHS, str(folder)])}
    log = folder / "server.log"
    with log.open("w") as out:
        server = subprocess.Popen(
            [sys.executable, *command], cwd=folder, env=environment, stdout=out, stderr=out,
            start_new_session=True,
        )  # fmt: skip
    try:
        end = time.monotonic() + 120
        while not answers(ready):
            assert server.poll() is None, log.read_text()
            assert time.monotonic() < end, log.read_text()
            time.sleep(0.2)
        yield server.pid
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.wait(10)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGKILL)
        server.wait()
