"""``python -m bench.cuda [ROW ...]`` times networks on a GPU beside torch.

torch runs eagerly, compiled, and replayed from a CUDA graph; where tenonnx multiplies by int4,
torch computes in float16. Inputs and outputs stay on the device. Results land in ``bench/results``
under the device's name.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import re
import sys
from pathlib import Path

from bench.compare import tell
from bench.cuda.measure import measure
from bench.cuda.table import ROWS
from bench.report import machine

RESULTS = Path(__file__).parents[1] / "results"
AGAINST = {"torch eager": 1.0, "torch.compile": 1.1}
"""How much longer than each of torch's ways a run may take."""


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
    parser.add_argument("--output", type=Path, default=RESULTS, metavar="DIR")
    parsed = parser.parse_args(arguments)
    for name in parsed.names:
        if name not in ROWS:
            parser.error(f"{name!r} is not one of {', '.join(ROWS)}")
    return parsed


def missing() -> str | None:
    """Says why nothing can be measured here; ``None`` if it can."""
    from tenonnx.provider import why_unusable
    from tenonnx_cuda.provider import CUDAExecutionProvider

    if (reason := why_unusable(CUDAExecutionProvider)) is not None:
        return f"CUDA cannot be used here: {reason}"
    if importlib.util.find_spec("torch") is None:
        return "torch is not installed; `pip install torch`"
    import torch

    return None if torch.cuda.is_available() else "this torch was built without CUDA"


def main(arguments: list[str] | None = None) -> int:
    """Returns 0 if every row keeps its bounds, 1 if one does not, 2 if there is no GPU."""
    parsed = parse(arguments)
    if (reason := missing()) is not None:
        print(f"error: {reason}", file=sys.stderr)
        return 2
    import torch

    device = torch.cuda.get_device_name()
    found: dict[str, dict[str, float]] = {}
    for name in parsed.names or ROWS:
        tell(f"{name}: {ROWS[name].about}")
        seconds = 0.05 if parsed.quick else parsed.seconds
        found[name] = measure(ROWS[name], seconds=seconds, small=parsed.quick)
        tell("  " + ", ".join(f"{way} {number:.3g}" for way, number in found[name].items()))
    stem = "cuda-" + re.sub(r"\W+", "-", device.lower()).strip("-")
    parsed.output.mkdir(parents=True, exist_ok=True)
    content = {"device": device, "machine": machine(), "milliseconds": found}
    (parsed.output / f"{stem}.json").write_text(json.dumps(content, indent=2) + "\n")
    (parsed.output / f"{stem}.md").write_text(table(device, found))
    return int(any(too_slow(row) for row in found.values()))


def best(row: dict[str, float]) -> float:
    """Returns tenonnx's faster way."""
    return min(row["tenonnx"], row["tenonnx graph"])


def too_slow(row: dict[str, float]) -> list[str]:
    """Returns which of torch's ways is ahead by more than it may."""
    return [way for way, bound in AGAINST.items() if best(row) > bound * row[way]]


def table(device: str, found: dict[str, dict[str, float]]) -> str:
    """Returns the results as a page of Markdown."""
    lines = [f"# Milliseconds per run on {device}", ""]
    ways = ["tenonnx", "tenonnx graph", "torch eager", "torch.compile", "torch graph"]
    more = ["tenonnx: first", "tenonnx: weights MiB"]
    header = ["", *ways, "first run from a file", "weights, MiB", "behind"]
    lines += [f"| {' | '.join(header)} |", "|---|" + "---:|" * (len(header) - 2) + "---|"]
    for name, row in found.items():
        cells = [ROWS[name].about, *(f"{row[way]:.3g}" for way in (*ways, *more))]
        lines.append(f"| {' | '.join([*cells, ', '.join(too_slow(row))])} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
