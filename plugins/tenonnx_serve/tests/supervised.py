"""A supervisor of stub services, in a process of its own, for tests."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


class Supervised:
    """The process, and requests to it."""

    def __init__(self, process: subprocess.Popen[str], port: int) -> None:
        self.process, self.port = process, port

    def get(self, path: str, timeout: float = 20) -> Any:
        url = f"http://127.0.0.1:{self.port}/{path}"
        with urllib.request.urlopen(url, timeout=timeout) as answer:
            return json.load(answer)

    def change(self, action: str, name: str, rest: str = "") -> str:
        """Load or unload; return the error, or nothing."""
        return str(self.get(f"change/{action}/{name}{rest}").get("error", ""))

    def workers(self) -> dict[int, dict[str, Any]]:
        return {each["number"]: each for each in self.get("collect")["workers"]}

    def total(self, name: str) -> int:
        """Return a count's sum over the workers, those that have ended too."""
        found = self.get("collect")
        counted = [found["retired"], *(each.get("counted", {}) for each in found["workers"])]
        return sum(each.get(name, 0) for each in counted)

    def words(self, name: str, count: int) -> dict[int, Any]:
        """Return what each worker answers for a model, once all have been met."""
        found: dict[int, Any] = {}
        until = time.monotonic() + 20
        while len(found) < count and time.monotonic() < until:
            answer = self.get(name)
            found[answer["worker"]] = answer["word"]
        return found


def wait_for(condition: Callable[[], Any], seconds: float = 20) -> Any:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if found := condition():
            return found
        time.sleep(0.02)
    raise AssertionError(f"not within {seconds} s")


@contextmanager
def supervised(
    folder: Path, workers: int = 2, drain: float = 5, idle: float = 20
) -> Iterator[Supervised]:
    """Run a supervisor of stub services over a folder of words, until the block ends."""
    told = map(str, (folder, workers, drain, idle))
    command = [sys.executable, str(HERE / "supervised.py"), *told]
    path = os.pathsep.join([str(HERE), *filter(None, sys.path)])
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": path},
    )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        if not line:
            assert process.stderr is not None
            raise RuntimeError(process.stderr.read())
        yield Supervised(process, int(line))
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.communicate(timeout=20)


def main() -> None:
    """Run the supervisor that the arguments describe; print its port when all serve."""
    from tenonnx_serve.supervisor import Deployment, Supervisor

    folder, workers, drain, idle = sys.argv[1:]
    settings = {"source": folder, "host": "127.0.0.1", "port": 0, "grpc_port": None}
    deployment = Deployment(
        "stub_service:Stub",
        settings,
        int(workers),
        1,
        drain_seconds=float(drain),
        idle_seconds=float(idle),
    )
    supervisor = Supervisor(deployment, lambda found: print(found["port"], flush=True))
    asyncio.run(supervisor.run())


if __name__ == "__main__":
    main()
