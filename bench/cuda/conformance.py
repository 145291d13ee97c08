"""``python -m bench.cuda.conformance`` runs ``onnx.backend.test`` with CUDA first in the list.

It tells how many cases pass, in JSON as it goes, and of each failure that the CPU provider has not.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Final

from bench.cuda.health import is_broken
from tenonnx.testing.suite import run_suite

GAPS: Final = Path(__file__).parents[2] / "tests" / "conformance" / "gaps" / "cpu.txt"


def main() -> None:
    """Run the suite; where the device is lost it ends."""
    lines = GAPS.read_text().splitlines()
    known = {line.split()[0].removesuffix("_cpu") for line in lines if line.startswith("test_")}
    told, cases = 0.0, run_suite("cuda", {"use_tf32": False})
    for name, score in cases:
        passed = {f"passed, {how} on the device": count for how, count in score.passed.items()}
        line: dict[str, object] = {"found": {"cases": score.cases, **passed}}
        if (why := score.failed.get(name)) is not None and name not in known:
            line["failed"] = {name: why}
        if "failed" in line or time.monotonic() - told > 1:
            told = time.monotonic()
            print(json.dumps(line), flush=True)
        if why is not None and is_broken():
            sys.exit(f"the device was lost in {name}")
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
