"""``python -m bench.cuda [ROW ...]`` times networks on a GPU beside torch.

torch runs eagerly, compiled, and replayed from a CUDA graph; where tenonnx multiplies by int4,
torch computes in float16. Inputs and outputs stay on the device. Every row is a process of its own
with a time limit: what fails or hangs is named in the results, and costs no other row. Results land
in ``bench/results``, with the device's name.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.compare import tell
from bench.cuda.page import page
from bench.cuda.table import ROWS
from bench.report import machine

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "bench" / "results"

LOOK = """
import json, torch, cupy
from tenonnx.provider import why_unusable
from tenonnx_cuda.provider import CUDAExecutionProvider
runtime = cupy.cuda.runtime
print(json.dumps({
    "missing": why_unusable(CUDAExecutionProvider),
    "device": torch.cuda.get_device_name(),
    "cupy": cupy.__version__, "torch": torch.__version__,
    "runtime": runtime.runtimeGetVersion(), "driver": runtime.driverGetVersion(),
}))
"""
"""Looks at the device in a process of its own: this one is not to hold any of its memory."""


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
    parser.add_argument("--limit", type=float, default=90.0, help="seconds that a row may take")
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
        run = Runs(environment, parsed.limit)
        seen, problem = run.look()
        if problem is not None:
            print(f"error: {problem}", file=sys.stderr)
            return 2
        content: dict[str, Any] = {**seen, "machine": machine(), "found": {}, "failed": {}}
        parsed.output.mkdir(parents=True, exist_ok=True)
        for name, command in commands(parsed).items():
            tell(name)
            content["found"][name], content["failed"][name] = run.lines(command)
            tell(f"  {content['found'][name]} {content['failed'][name]}")
            # After each, so that a machine that is taken away has left what it knew.
            (parsed.output / "cuda.json").write_text(json.dumps(content, indent=2) + "\n")
            (parsed.output / "cuda.md").write_text(page(content))
    return int(any(content["failed"].values()))


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
        limit: Seconds that one may take; the tests, four times as many.
    """

    def __init__(self, environment: dict[str, str], limit: float) -> None:
        self._environment = environment
        self._limit = limit

    def look(self) -> tuple[dict[str, Any], str | None]:
        """Returns what device and libraries there are, or why nothing can be measured here."""
        done = subprocess.run(
            [sys.executable, "-c", LOOK], env=self._environment, capture_output=True, text=True
        )
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
            return {}, missing() or f"the device cannot be looked at: {last}"
        seen = json.loads(done.stdout.splitlines()[-1])
        reason = seen.pop("missing")
        return seen, None if reason is None else f"CUDA cannot be used here: {reason}"

    def lines(self, command: Sequence[str]) -> tuple[dict[str, Any], dict[str, str]]:
        """Returns the figures that a process found, and what of it failed."""
        found: dict[str, Any] = {}
        failed: dict[str, str] = {}
        limit = self._limit * (4 if "bench.cuda.tests" in command else 1)
        start = time.monotonic()
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
            streams: dict[str, Any] = {"stdout": out, "stderr": err, "cwd": ROOT}
            try:
                code: int | str = subprocess.run(
                    [sys.executable, *command], env=self._environment, timeout=limit, **streams
                ).returncode
            except subprocess.TimeoutExpired:
                code = f"no end after {time.monotonic() - start:.0f} s"
            out.seek(0)
            err.seek(0)
            for line in out:
                if line.startswith("{"):
                    content = json.loads(line)
                    found |= content.get("found", {})
                    failed |= content.get("failed", {})
            if code:
                last = (err.read().strip().splitlines() or ["it said nothing"])[-1]
                failed["process"] = f"{code}: {last}"
        return found, failed


def missing() -> str | None:
    """Says in the provider's words why nothing can be measured here; ``None`` if it knows none."""
    from tenonnx.provider import why_unusable
    from tenonnx_cuda.provider import CUDAExecutionProvider

    reason = why_unusable(CUDAExecutionProvider)
    return None if reason is None else f"CUDA cannot be used here: {reason}"


if __name__ == "__main__":
    sys.exit(main())
