"""``python -m bench.cuda [ROW ...]`` times networks on a GPU beside torch.

torch runs eagerly, compiled, and replayed from a CUDA graph; where tenonnx multiplies by int4,
torch computes in float16. Inputs and outputs stay on the device. Every row is a process of its own
with a time limit: what fails or hangs is named in the results, and costs no other row. Results land
in ``bench/results``, with the device's name, after every row; ``cuda.log`` there has all that was
written on the way, with the traceback of each failure.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from bench.cuda.page import page
from bench.cuda.table import ROWS
from bench.machine import machine, tell

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "bench" / "results"

LOOK = """
import json, cupy
from tenonnx.provider import why_unusable
from tenonnx_cuda.provider import CUDAExecutionProvider
runtime = cupy.cuda.runtime
try:
    import torch
    torch = torch.__version__ + ("" if torch.cuda.is_available() else " without CUDA")
except Exception as error:
    torch = repr(error)
print(json.dumps({
    "missing": why_unusable(CUDAExecutionProvider),
    "device": runtime.getDeviceProperties(0)["name"].decode(),
    "cupy": cupy.__version__, "torch": torch,
    "runtime": runtime.runtimeGetVersion(), "driver": runtime.driverGetVersion(),
}))
"""
"""Looks at the device in a process of its own: this one is not to hold any of its memory."""

LOOK_SECONDS = 120
"""That it may take: loading torch alone takes ten."""


def parse(arguments: list[str] | None) -> argparse.Namespace:
    names = "\n".join(f"  {name:16} {row.about}" for name, row in ROWS.items())
    parser = argparse.ArgumentParser(
        prog="python -m bench.cuda",
        description=__doc__,
        epilog=f"rows:\n{names}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="ROW", help="what to measure, all by default")
    parser.add_argument("--quick", action="store_true", help="small networks, a moment each")
    parser.add_argument("--seconds", type=float, default=3.0, help="length of a measurement")
    parser.add_argument("--limit", type=float, default=150.0, help="seconds that a row may take")
    parser.add_argument(
        "--budget",
        type=float,
        default=float("inf"),
        metavar="SECONDS",
        help="that all of it may take: what does not fit is cut short, or left out and named",
    )
    parser.add_argument(
        "--skip-done",
        action="store_true",
        help="go on with the results in the output folder, if they are of this device: leave out "
        "what is there, and nothing of it failed",
    )
    parser.add_argument("--kernels", action="store_true", help="time kernels one by one, too")
    parser.add_argument("--tests", action="store_true", help="run tests/cuda first")
    parser.add_argument(
        "--wheels",
        type=Path,
        metavar="DIR",
        help="install the wheels in a folder first, without a network, for this run alone",
    )
    parser.add_argument("--output", type=Path, default=RESULTS, metavar="DIR")
    parsed = parser.parse_args(arguments)
    for name in parsed.names:
        if name not in ROWS:
            parser.error(f"{name!r} is not one of {', '.join(ROWS)}")
    return parsed


def main(arguments: list[str] | None = None) -> int:
    """Returns 0 if all that was asked for was measured and passed, 1 if not, 2 without a GPU."""
    parsed = parse(arguments)
    with tempfile.TemporaryDirectory() as site:
        environment = installed(parsed.wheels, Path(site)) if parsed.wheels else dict(os.environ)
        run = Runs(environment, parsed.limit, parsed.output / "cuda.log", parsed.budget)
        seen, problem = run.look()
        if problem is not None:
            print(f"error: {problem}", file=sys.stderr)
            return 2
        seen = {**seen, "machine": machine(), "quick": parsed.quick}
        before = earlier(parsed.output / "cuda.json", seen) if parsed.skip_done else {}
        content: dict[str, Any] = {"found": {}, "failed": {}, **before, **seen}
        for name, command in commands(parsed).items():
            if name in before.get("found", ()) and not before["failed"].get(name):
                tell(f"{name} is done")
                continue
            tell(name)
            content["found"][name], content["failed"][name] = run.lines(command)
            tell(f"  {content['found'][name]}\n  {len(content['failed'][name])} failed")
            # After each, so that a machine that is taken away has left what it knew.
            (parsed.output / "cuda.json").write_text(json.dumps(content, indent=2) + "\n")
            (parsed.output / "cuda.md").write_text(page(content))
    return int(any(content["failed"].values()))


def earlier(path: Path, seen: dict[str, Any]) -> dict[str, Any]:
    """Returns results of the same device, and of networks of the same size, if there are any."""
    if not path.exists():
        return {}
    content: dict[str, Any] = json.loads(path.read_text())
    same = all(content.get(name) == seen[name] for name in ("device", "quick"))
    return content if same else {}


def commands(parsed: argparse.Namespace) -> dict[str, list[str]]:
    """Returns what is run, in order: by name, the arguments of Python."""
    found = {}
    if parsed.tests:
        found["tests"] = ["-m", "bench.cuda.tests"]
    if parsed.kernels:
        found["kernels"] = ["-m", "bench.cuda.kernels"]
    size = ["--small", "--seconds", "0.05"] if parsed.quick else ["--seconds", str(parsed.seconds)]
    for name in parsed.names or ROWS:
        found[name] = ["-m", "bench.cuda.measure", name, *size]
    return found


def installed(wheels: Path, site: Path) -> dict[str, str]:
    """Installs wheels into a folder and returns an environment in which they are found."""
    files = [str(path) for path in sorted(wheels.glob("*.whl"))]
    if not files:
        raise SystemExit(f"error: no wheels in {wheels}")
    quiet = ["-q", "--no-index", "--no-deps", "--no-cache-dir", "--disable-pip-version-check"]
    tell(f"installing {len(files)} wheels")
    subprocess.run(
        [sys.executable, "-m", "pip", "install", *quiet, "--target", str(site), *files], check=True
    )
    before = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (str(site), before)))}


class Runs:
    """Processes that write lines of JSON.

    Args:
        environment: Theirs.
        limit: Seconds that one may take; the tests, twice as many.
        log: A file that gets all that they write.
        budget: Seconds that all together may take.
    """

    def __init__(
        self, environment: dict[str, str], limit: float, log: Path, budget: float = float("inf")
    ) -> None:
        self._environment = environment
        self._limit = limit
        self._log = log
        self._end = time.monotonic() + budget

    def look(self) -> tuple[dict[str, Any], str | None]:
        """Returns what device and libraries there are, or why nothing can be measured here."""
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

    def lines(self, command: Sequence[str]) -> tuple[dict[str, Any], dict[str, str]]:
        """Returns the figures that a process found, and what of it failed."""
        found: dict[str, Any] = {}
        failed: dict[str, str] = {}
        limit = self._limit * (2 if "bench.cuda.tests" in command else 1)
        limit = min(limit, self._end - time.monotonic())
        if limit <= 0:
            return found, {"process": "no time was left"}
        with tempfile.TemporaryFile("w+") as out, self._log.open("a+") as err:
            err.write(f"\n\n# {' '.join(command)}\n")
            err.flush()
            start = err.tell()
            code = ended([sys.executable, *command], limit, self._environment, out, err)
            out.seek(0)
            for line in out:
                content = read(line)
                found |= content.get("found", {})
                failed |= content.get("failed", {})
            if code:
                err.seek(start)
                last = (err.read().strip().splitlines() or ["it said nothing"])[-1]
                failed["process"] = f"{code}: {last[:500]}"
        return found, failed


def ended(
    command: Sequence[str], limit: float, environment: dict[str, str], out: IO[str], err: IO[str]
) -> int | str:
    """Runs a command and returns how it ended; after some seconds all that it started is ended."""
    process = subprocess.Popen(
        command, env=environment, cwd=ROOT, stdout=out, stderr=err, start_new_session=True
    )
    try:
        return process.wait(limit)
    except subprocess.TimeoutExpired:
        return f"no end after {limit:.0f} s"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def read(line: str) -> dict[str, Any]:
    """Returns a line's figures; none if it is not one of ours, or was cut short."""
    try:
        content = json.loads(line)
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}


def missing() -> str | None:
    """Says in the provider's words why nothing can be measured here; ``None`` if it knows none."""
    from tenonnx.provider import why_unusable
    from tenonnx_cuda.provider import CUDAExecutionProvider

    reason = why_unusable(CUDAExecutionProvider)
    return None if reason is None else f"CUDA cannot be used here: {reason}"


if __name__ == "__main__":
    sys.exit(main())
