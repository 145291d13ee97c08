"""``python -m tenonnx.testing PROVIDER``: how much of ONNX's suite passes on a provider."""

from __future__ import annotations

import argparse
import os
import sys

# The suite's real models need every column of a product summed in one order, which OpenBLAS
# keeps only while it does not share a product out among threads. It asks when numpy is imported.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from tenonnx.cli.opening import parse_provider
from tenonnx.cli.output import progress
from tenonnx.errors import TenonnxError
from tenonnx.testing.suite import Score, run_suite


def main(arguments: list[str] | None = None) -> int:
    """Prints the score; returns 0 if every case passes, 1 if not, 2 if none could run."""
    parser = argparse.ArgumentParser(prog="python -m tenonnx.testing", description=__doc__)
    parser.add_argument("provider", metavar="NAME:OPTION=VALUE,...", help="the provider")
    parser.add_argument(
        "--cases", default="test_", metavar="PREFIX", help="how the names of the cases begin"
    )
    parsed = parser.parse_args(arguments)
    score = Score()
    try:
        name, options = parse_provider(parsed.provider)
        with progress() as show:
            for done, (case, now) in enumerate(run_suite(name, options, parsed.cases)):
                score = now
                show(case if sys.stderr.isatty() else "running the suite", done)
    except TenonnxError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    for case, why in score.failed.items():
        print(f"{case}  {why}")
    print(score)
    return 1 if score.failed or not score.cases else 0


if __name__ == "__main__":
    sys.exit(main())
