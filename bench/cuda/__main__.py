"""``python -m bench.cuda [ROW ...]`` times networks on a GPU beside torch.

torch runs eagerly, compiled, and replayed from a CUDA graph; where tenonnx multiplies by int4,
torch computes in float16. Inputs and outputs stay on the device. Every row is a process of its own
with a time limit: what fails or hangs is named in the results, and costs no other row. Results land
in ``bench/results``, in files of the device's name, after every figure; ``cuda.log`` there has all
that was written on the way, with the traceback of each failure.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.cuda.page import CONFORMANCE, KERNELS, SMALL, TESTS
from bench.cuda.processes import Runs
from bench.cuda.results import Results
from bench.cuda.table import ROWS
from bench.machine import machine, tell
from bench.options import parser

# A measurement of minutes that reports its progress every second.
COUNTED = (TESTS, CONFORMANCE)

# Between two of those that are told.
TELL_SECONDS = 10


def parse(arguments: list[str] | None) -> argparse.Namespace:
    made = parser("cuda", __doc__, {name: row.about for name, row in ROWS.items()})
    made.add_argument(
        "--quick", action="store_true", help="small networks, a moment each: whether they run"
    )
    made.add_argument("--seconds", type=float, default=3.0, help="length of a measurement")
    made.add_argument("--limit", type=float, default=150.0, help="seconds that a row may take")
    made.add_argument(
        "--budget",
        type=float,
        default=float("inf"),
        metavar="SECONDS",
        help="that all of it may take: what does not fit is cut short, or left out and named",
    )
    made.add_argument(
        "--skip-done",
        action="store_true",
        help="leave out what the results of this device in the output folder have, if nothing of "
        "it failed",
    )
    made.add_argument("--kernels", action="store_true", help="time kernels one by one, too")
    made.add_argument(
        "--tests", action="store_true", help="run tests/cuda and ONNX's backend tests, too"
    )
    made.add_argument(
        "--wheels",
        type=Path,
        metavar="DIR",
        help="install the wheels in a folder first, without a network, for this run alone",
    )
    return made.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Return 0 if all that was asked for was measured and passed, 1 if not, 2 without a GPU."""
    parsed = parse(arguments)
    with tempfile.TemporaryDirectory() as site:
        environment = installed(parsed.wheels, Path(site)) if parsed.wheels else dict(os.environ)
        run = Runs(environment, parsed.limit, parsed.output / "cuda.log", parsed.budget)
        seen, problem = run.look()
        if problem is not None:
            print(f"error: {problem}", file=sys.stderr)
            return 2
        results = Results(parsed.output, {**seen, "machine": machine()})
        asked = commands(parsed)
        for name, command in asked.items():
            if parsed.skip_done and results.is_done(name):
                tell(f"{name} is done")
                continue
            measure(run, name, command, results)
    tell(f"results are in {results.path.with_suffix('.md')}")
    return int(not all(map(results.is_done, asked)))


def measure(run: Runs, name: str, command: list[str], results: Results) -> None:
    """Run a command, and note and tell what it says."""
    told = 0.0

    def heard(found: Mapping[str, Any], failed: Mapping[str, str]) -> None:
        nonlocal told
        results.add(name, found, failed)
        if found and (name not in COUNTED or time.monotonic() - told > TELL_SECONDS):
            told = time.monotonic()
            tell("  " + ", ".join(f"{what} {value:.6g}" for what, value in found.items()))
        for what, why in failed.items():
            tell(f"  FAILED {what}: {why}")

    tell(name)
    results.begin(name)
    run.run(command, heard, times=2 if name in COUNTED else 1)


def commands(parsed: argparse.Namespace) -> dict[str, list[str]]:
    """Return what is run, in order: by name, the arguments of Python.

    Small networks come first, which take a moment and show whether anything works.
    """
    found = {}
    if parsed.tests:
        found[TESTS] = ["-m", "bench.cuda.tests"]
        found[CONFORMANCE] = ["-m", "bench.cuda.conformance"]
    if parsed.kernels:
        found[KERNELS] = ["-m", "bench.cuda.kernels"]
    size = ["--small", "--seconds", "0.05"] if parsed.quick else ["--seconds", str(parsed.seconds)]
    prefix, names = SMALL if parsed.quick else "", parsed.names or ROWS
    rows = {f"{prefix}{name}": ["-m", "bench.cuda.measure", name, *size] for name in names}
    return {**rows, **found} if parsed.quick else {**found, **rows}


def installed(wheels: Path, site: Path) -> dict[str, str]:
    """Install wheels into a folder and return an environment in which they are found."""
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


if __name__ == "__main__":
    # As at Ctrl-C, what was started ends with it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    sys.exit(main())
