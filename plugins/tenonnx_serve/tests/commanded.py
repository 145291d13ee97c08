"""The command ``tenonnx serve`` in processes of its own, for tests and benchmarks."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

READY = re.compile(r"ready: REST on (https?)://([^ ,]+):(\d+)(?:, gRPC on [^ ]+:(\d+))?")

RUN = "from tenonnx.cli import main; main()"


class Served:
    """A server's processes, and requests to it.

    Attributes:
        lines: What it has printed.
        start_seconds: How long it took to be ready.
    """

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: list[str] = []
        self.port = self.grpc_port = 0
        self.start_seconds = 0.0
        self._found = threading.Event()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line)
            if match := READY.search(line):
                self.port, self.grpc_port = int(match[3]), int(match[4] or 0)
                self._found.set()
        self._found.set()

    def wait(self, seconds: float = 120) -> None:
        """Wait until it is ready."""
        start = time.monotonic()
        self._found.wait(seconds)
        self.start_seconds = time.monotonic() - start
        if not self.port:
            raise RuntimeError("".join(self.lines) or "it printed nothing")

    def stop(self) -> int:
        """End it; return its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(40)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        self._reader.join()
        assert self.process.stderr is not None
        self.process.stderr.close()
        return code

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: dict[str, str] | None = None,
        timeout: float = 30,
    ) -> tuple[int, Any, dict[str, str]]:
        """Return status, body and headers of one request, on a connection of its own."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        with contextlib.closing(connection):
            data = body if isinstance(body, bytes | None) else json.dumps(body)
            connection.request(method, path, data, headers or {})
            answer = connection.getresponse()
            content = answer.read()
        found = {name.lower(): value for name, value in answer.getheaders()}
        is_json = found.get("content-type") == "application/json"
        return answer.status, json.loads(content) if is_json and content else content, found

    def infer(self, name: str, values: list[float]) -> list[float]:
        """Return the first output of a model of one row."""
        tensor = {"name": "x", "datatype": "FP32", "shape": [1, len(values)], "data": values}
        status, said, _ = self.call("POST", f"/v2/models/{name}/infer", {"inputs": [tensor]})
        if status != 200:
            raise RuntimeError(f"{status}: {said}")
        found: list[float] = said["outputs"][0]["data"]
        return found

    def pids(self) -> list[int]:
        """Return the workers' process ids."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(pid) for pid in children.read_text().split()]


@contextlib.contextmanager
def served(
    source: Path, *options: str, environment: dict[str, str] | None = None, verbose: bool = False
) -> Iterator[Served]:
    """Run ``tenonnx serve`` on free ports until the block ends; it has to end well."""
    ports = ["--port", "0"] + ([] if "--grpc-port" in options else ["--grpc-port", "-1"])
    before = ["-v"] if verbose else []
    command = [sys.executable, "-c", RUN, *before, "serve", str(source), *ports, *options]
    path = os.pathsep.join(filter(None, sys.path))
    process = subprocess.Popen(
        command,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": path} | (environment or {}),
    )
    found = Served(process)
    try:
        found.wait()
        yield found
        assert found.stop() == 0, "".join(found.lines)
    finally:
        found.stop()
