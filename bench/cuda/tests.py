"""``python -m bench.cuda.tests`` runs tests/cuda on a device, and says how it went in JSON."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROCESSES = 8
"""They share the device; more of them wait for it."""

LENIENT = ("-p", "no:benchmark", "-W", "default", "-W", "error::UserWarning")
"""Libraries are whatever the machine has, and may deprecate what this project's do not."""


def main() -> int:
    """Runs the tests, all cases; returns 0 if there is an account of them."""
    environment = {**os.environ, "TENONNX_CUDA_EVERY_CASE": "1"}
    with tempfile.TemporaryDirectory() as folder:
        account = Path(folder) / "account.xml"
        command = [sys.executable, "-m", "pytest", "-q", "tests/cuda", f"--junitxml={account}"]
        command += [*LENIENT]
        if importlib.util.find_spec("xdist"):
            command += ["-n", str(min(PROCESSES, os.cpu_count() or 1))]
        subprocess.run(command, cwd=ROOT, env=environment, stdout=sys.stderr)
        if not account.exists():
            return 1
        print(json.dumps(told(account.read_text())), flush=True)
    return 0


def told(xml: str) -> dict[str, dict[str, object]]:
    """Returns the counts of an account of pytest's, and each failure's first line."""
    (suite,) = ElementTree.fromstring(xml).iter("testsuite")
    counts = {name: int(suite.attrib[name]) for name in ("tests", "failures", "errors", "skipped")}
    counts["passed"] = counts["tests"] - sum(counts[n] for n in ("failures", "errors", "skipped"))
    failed: dict[str, object] = {}
    for case in suite.iter("testcase"):
        for problem in (*case.iter("failure"), *case.iter("error")):
            lines = problem.attrib.get("message", "").splitlines() or [""]
            failed[f"{case.attrib['classname']}::{case.attrib['name']}"] = lines[0][:200]
    found: dict[str, object] = {**counts, "seconds": float(suite.attrib["time"])}
    return {"found": found, "failed": failed}


if __name__ == "__main__":
    sys.exit(main())
