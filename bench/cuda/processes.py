"""Processes that write lines of JSON: heard while they run, they may fail or hang alone."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Final, TypeAlias

ROOT: Final = Path(__file__).parents[2]

# Looks at the device in a process of its own: this one is not to hold any of its memory.
LOOK: Final = """
import json, cupy
from tenonnx.provider import why_unusable
from tenonnx_cuda.provider import CUDAExecutionProvider
runtime = cupy.cuda.runtime
try:
    import torch
    torch = torch.__version__ + ("" if torch.cuda.is_available() else " without CUDA")
except ImportError:
    torch = "is not installed"
except Exception as error:
    torch = repr(error)
print(json.dumps({
    "missing": why_unusable(CUDAExecutionProvider),
    "device": runtime.getDeviceProperties(0)["name"].decode(),
    "cupy": cupy.__version__, "torch": torch,
    "runtime": runtime.runtimeGetVersion(), "driver": runtime.driverGetVersion(),
}))
"""

# That it may take: loading torch alone takes ten.
LOOK_SECONDS: Final = 120

# Seconds between looks at what a process has written.
PAUSE: Final = 0.5

# Takes figures, and why there are none of others.
Heard: TypeAlias = Callable[[Mapping[str, Any], Mapping[str, str]], None]


class Runs:
    """Runs Python one process after another.

    Args:
        environment: The processes'.
        limit: Seconds that one may take.
        log: A file that gets all that they write besides their lines.
        budget: Seconds that all together may take.
    """

    def __init__(
        self,
        environment: Mapping[str, str],
        limit: float,
        log: Path,
        budget: float = float("inf"),
    ) -> None:
        self._environment = environment
        self._limit = limit
        self._log = log
        self._end = time.monotonic() + budget

    def look(self) -> tuple[dict[str, Any], str | None]:
        """Return what device and libraries there are, or why nothing can be measured here."""
        try:
            done = subprocess.run(
                [sys.executable, "-c", LOOK],
                env=self._environment,
                capture_output=True,
                text=True,
                timeout=LOOK_SECONDS,
            )
        except subprocess.TimeoutExpired:
            return {}, f"the device does not answer within {LOOK_SECONDS} s"
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
            return {}, missing() or f"the device cannot be looked at: {last}"
        seen = json.loads(done.stdout.splitlines()[-1])
        reason = seen.pop("missing")
        if reason is None:
            self._log.parent.mkdir(parents=True, exist_ok=True)
            self._log.write_text(done.stderr)
        return seen, None if reason is None else f"CUDA cannot be used here: {reason}"

    def run(self, command: Sequence[str], heard: Heard, times: int = 1) -> None:
        """Run a process, and tell what it says as it says it; at last, if it failed.

        Args:
            command: The arguments of Python.
            heard: Told.
            times: How many times the limit it may take.
        """
        limit = min(times * self._limit, self._end - time.monotonic())
        if limit <= 0:
            heard({}, {"process": "no time was left"})
            return
        with tempfile.NamedTemporaryFile() as out, self._log.open("a+") as err:
            err.write(f"\n\n# {' '.join(command)}\n")
            err.flush()
            start = err.tell()
            with Path(out.name).open() as lines:
                how = [sys.executable, *command], limit, self._environment
                code = ended(*how, out, err, lambda: hear(lines, heard))
            if code:
                err.seek(start)
                last = (err.read().strip().splitlines() or ["it said nothing"])[-1]
                heard({}, {"process": f"{code}: {last[:500]}"})


def ended(
    command: Sequence[str],
    limit: float,
    environment: Mapping[str, str],
    out: IO[bytes],
    err: IO[str],
    meanwhile: Callable[[], None],
) -> int | str:
    """Run a command and return how it ended; after some seconds all that it started is ended."""
    process = subprocess.Popen(
        command, env=environment, cwd=ROOT, stdout=out, stderr=err, process_group=0
    )
    end = time.monotonic() + limit
    try:
        while (left := end - time.monotonic()) > 0:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return process.wait(min(PAUSE, left))
            meanwhile()
        return f"no end after {limit:.0f} s"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        meanwhile()


def hear(lines: IO[str], heard: Heard) -> None:
    """Report the whole lines that came since the last time."""
    at = lines.tell()
    while (line := lines.readline()).endswith("\n"):
        at = lines.tell()
        content = read(line)
        if content:
            heard(content.get("found", {}), content.get("failed", {}))
    lines.seek(at)


def read(line: str) -> dict[str, Any]:
    """Return a line's figures; none if it is not one of ours."""
    try:
        content = json.loads(line)
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}


def missing() -> str | None:
    """Say in the provider's words why nothing can be measured here; ``None`` if it knows none."""
    try:
        from tenonnx.provider import why_unusable
        from tenonnx_cuda.provider import CUDAExecutionProvider
    except ImportError as error:
        return f"tenonnx cannot be imported ({error}): pip install -e '.[cuda]', or give --wheels"
    reason = why_unusable(CUDAExecutionProvider)
    return None if reason is None else f"CUDA cannot be used here: {reason}"
