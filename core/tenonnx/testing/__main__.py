"""``python -m tenonnx.testing PROVIDER``: how far a provider gets in ONNX's suite."""

from __future__ import annotations

import argparse
import os
import sys

# The suite's real models need every column of a product summed in one order, which OpenBLAS
# keeps only while it does not share a product out among threads. It asks when numpy is imported.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from tenonnx.cli.opening import parse_provider
from tenonnx.cli.output import progress, table
from tenonnx.errors import TenonnxError
from tenonnx.plugins.manager import default_plugins
from tenonnx.testing.score import Score
from tenonnx.testing.suite import run_suite


def main(arguments: list[str] | None = None) -> int:
    """Prints the score; returns 0 if all cases that ran passed, 1 if not, 2 if none could run."""
    parser = argparse.ArgumentParser(prog="python -m tenonnx.testing", description=__doc__)
    parser.add_argument("provider", metavar="NAME:OPTION=VALUE,...", help="the provider")
    parser.add_argument(
        "--cases", default="test_", metavar="PREFIX", help="how the names of the cases begin"
    )
    parser.add_argument(
        "--plugin", metavar="FILE.py", action="append", default=[], help="add a plug-in from a file"
    )
    parsed = parser.parse_args(arguments)
    score = Score()
    try:
        for file in parsed.plugin:
            default_plugins().register_file(file)
        name, options = parse_provider(parsed.provider)
        with progress() as show:
            for done, (case, now) in enumerate(run_suite(name, options, parsed.cases)):
                score = now
                show(case if sys.stderr.isatty() else "running the suite", done)
    except TenonnxError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if not (score.cases or score.skipped):
        print(f"error: no case's name begins with {parsed.cases!r}", file=sys.stderr)
        return 2
    for case, why in score.surprises.items():
        print(f"{case}  {why}")
    table(("cases", "outcome", "operators"), score.table(), right=("cases",))
    print(score)
    return 1 if score.failed else 0


if __name__ == "__main__":
    sys.exit(main())
