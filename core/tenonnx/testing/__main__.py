"""``python -m tenonnx.testing PROVIDER``: how far a provider gets in ONNX's suite."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Final

# The suite's real models need every column of a product summed in one order, which OpenBLAS
# keeps only while it does not share a product out among threads. It asks when numpy is imported.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from tenonnx.cli.opening import parse_provider
from tenonnx.cli.output import progress, table
from tenonnx.errors import TenonnxError
from tenonnx.plugins.manager import default_plugins
from tenonnx.testing.score import Score
from tenonnx.testing.suite import run_suite

AS_WRITTEN: Final = argparse.RawDescriptionHelpFormatter
HELP: Final = """Runs ONNX's test suite on a provider, with the CPU provider behind it.

A table shows where the cases run: on the provider, by an operator's function body, with numpy in
place of a missing function, or on the CPU provider, with the reason. It also names the functions
that an array library lacks, and packages that are missing.

examples:
  python -m tenonnx.testing torch
  python -m tenonnx.testing mine --plugin my_provider.py --cases test_conv

exit codes:
  0  all cases that ran passed
  1  some failed
  2  none could run
"""


def main(arguments: list[str] | None = None) -> int:
    """Print the score; return 0 if all cases that ran passed, 1 if not, 2 if none could run."""
    parser = argparse.ArgumentParser(
        prog="python -m tenonnx.testing", description=HELP, formatter_class=AS_WRITTEN
    )
    parser.add_argument(
        "provider", metavar="NAME:OPTION=VALUE,...", help="a provider, and its options if any"
    )
    parser.add_argument(
        "--cases", default="test_", metavar="PREFIX", help="run the cases with this prefix"
    )
    parser.add_argument(
        "--plugin",
        metavar="FILE.py",
        action="append",
        default=[],
        help="load a plug-in from a file; may be repeated",
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
