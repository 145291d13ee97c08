"""``python -m bench.cuda.tests`` runs tests/cuda on a device, and tells as it goes, in JSON.

Counts come every second and each failure when it happens, its whole report on stderr, so that a
run that is cut short has told what it knew.
"""

from __future__ import annotations

import json
import os
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
# Measures memory of the device, which is everybody's.
ALONE = "tests/cuda/test_cuda_device_memory.py"

# They share the device; more of them wait for it.
PROCESSES = 8

# That a test may take before its process is ended.
SECONDS = 90

# Libraries are whatever the machine has, and may deprecate what this project's do not.
LENIENT = (
    *("-p", "no:benchmark", "-p", "bench.cuda.health"),
    *("-W", "default", "-W", "error:running on:UserWarning"),
)


class Account:
    """A plug-in of pytest's that tells of every test.

    Args:
        out: A file for lines of JSON.
    """

    def __init__(self, out: Any) -> None:
        self._out = out
        self.found: dict[str, Any] = {"passed": 0, "failures": 0, "errors": 0, "skipped": 0}
        self._start = self._told = time.monotonic()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count a result, and tell of a failure."""
        if report.failed:
            kind = "failures" if report.when == "call" else "errors"
            self.found[kind] += 1
            print(f"\n{report.nodeid}\n{report.longreprtext}", file=sys.stderr, flush=True)
            self.tell(failed={report.nodeid: said(report.longreprtext)})
        elif report.skipped:
            self.found["skipped"] += 1
        elif report.when == "call":
            self.found["passed"] += 1
        if time.monotonic() - self._told > 1:
            self.tell()

    def tell(self, **more: Any) -> None:
        """Write the counts."""
        self._told = time.monotonic()
        found = {**self.found, "seconds": self._told - self._start}
        print(json.dumps({"found": found, **more}), file=self._out, flush=True)


def said(report: str) -> str:
    """Return the first line of a report that says what is wrong."""
    wrong = (line[1:].strip() for line in report.splitlines() if line.startswith("E "))
    return next(wrong, report.strip().rpartition("\n")[2])[:300]


def main() -> None:
    """Run the tests, all cases."""
    os.chdir(ROOT)
    os.environ["TENONNX_CUDA_EVERY_CASE"] = "1"
    with os.fdopen(os.dup(1), "w") as out:
        os.dup2(2, 1)  # what pytest writes is not JSON
        account = Account(out)
        several = ["-n", str(min(PROCESSES, os.cpu_count() or 1))] if find_spec("xdist") else []
        timed = [f"--timeout={SECONDS}", "--timeout-method=thread"]
        options = ["-q", *LENIENT, *(timed if find_spec("pytest_timeout") else ())]
        # First what a device is needed for: the others have run where there is none.
        files = sorted(map(str, Path("tests/cuda").glob("test_*.py")))
        device = [file for file in files if "device" in file and file != ALONE]
        others = [file for file in files if "device" not in file]
        for chosen in ([*several, *device], [ALONE], [*several, *others]):
            pytest.main([*options, *chosen], plugins=[account])
            account.tell()


if __name__ == "__main__":
    main()
