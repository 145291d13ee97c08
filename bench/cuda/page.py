"""The results as a page of Markdown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bench.cuda.table import ROWS

AGAINST = {"torch eager": 1.0, "torch.compile": 1.1}
"""How much longer than each of torch's ways a run may take."""

WAYS = ("tenonnx", "tenonnx graph", "torch eager", "torch.compile", "torch graph")
UNITS = ("GB/s", "TFLOP/s", "host µs")
MORE = {"tenonnx: first": "first run from a cold file", "tenonnx: weights MiB": "weights, MiB"}
LIMIT = ("limit", "times the limit")


def page(content: Mapping[str, Any]) -> str:
    """Returns the page of what was found, and of what was not."""
    versions = ", ".join(f"{name} {content[name]}" for name in ("cupy", "torch") if name in content)
    lines = [f"# {content['device']}", "", f"{versions}; {machine_line(content)}", ""]
    found = content["found"]
    if tests := found.get("tests"):
        counts = ", ".join(f"{tests[n]} {n}" for n in ("passed", "failures", "errors", "skipped"))
        lines += [f"tests/cuda: {counts}; {tests['seconds']:.0f} s.", ""]
    if networks := {name: row for name, row in found.items() if name in ROWS}:
        lines += [*table(networks), ""]
    if kernels := found.get("kernels"):
        lines += [*kernel_table(kernels), ""]
    problems = [
        f"- `{name}`, {what}: {why}"
        for name, failed in content["failed"].items()
        for what, why in failed.items()
    ]
    if problems:
        lines += ["## What failed", "", *problems, ""]
    return "\n".join(lines)


def machine_line(content: Mapping[str, Any]) -> str:
    """Returns the host in a few words."""
    host = content.get("machine", {})
    driver = content.get("driver", 0)
    return f"driver for CUDA {driver // 1000}.{driver % 1000 // 10}, {host.get('cpu', 'host')}"


def table(found: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Returns networks' milliseconds per run, and which of torch's ways is ahead."""
    header = ["", "torch in", *WAYS, *LIMIT, *MORE.values(), "behind"]
    lines = ["## Milliseconds per run", "", f"| {' | '.join(header)} |"]
    lines.append("|---|---|" + "---:|" * (len(header) - 3) + "---|")
    for name, row in found.items():
        known = ROWS[name]
        least = limit(row) if known.streams else None
        ours = fastest(row)
        over = None if least is None or ours is None else ours / least
        cells = [row.get(way) for way in WAYS] + [least, over] + [row.get(way) for way in MORE]
        kind = "float16" if known.half else "TF32"
        behind = ", ".join(too_slow(row))
        lines.append(f"| {' | '.join([known.about, kind, *map(number, cells), behind])} |")
    about = (
        "*limit*: what the device's memory takes to read all weights once, as fast as it copies;"
    )
    return [*lines, "", f"{about} *times the limit*: tenonnx's faster way."]


def limit(row: Mapping[str, float]) -> float | None:
    """Returns the milliseconds in which weights can be read at least."""
    rate, weights = row.get("memory GB/s"), row.get("tenonnx: weights MiB")
    return None if not rate or not weights else 1e3 * weights * 2**20 / (1e9 * rate)


def fastest(row: Mapping[str, float]) -> float | None:
    """Returns what tenonnx's faster way takes."""
    return min((row[way] for way in ("tenonnx", "tenonnx graph") if way in row), default=None)


def kernel_table(found: Mapping[str, float]) -> list[str]:
    """Returns kernels' microseconds, what they read and compute a second, and Python's share."""
    lines = ["## Kernels", "", f"| | µs | {' | '.join(UNITS)} |", "|---|" + "---:|" * 4]
    for name, took in found.items():
        if not name.endswith(UNITS):
            rates = [number(found.get(f"{name} {unit}")) for unit in UNITS]
            lines.append(f"| {' | '.join([name, number(took), *rates])} |")
    return lines


def number(value: float | None) -> str:
    """Returns a figure, or a dash for none."""
    return "–" if value is None else f"{value:.3g}" if value < 1000 else f"{value:.0f}"


def too_slow(row: Mapping[str, float]) -> list[str]:
    """Returns which of torch's ways is ahead of tenonnx's faster one by more than it may."""
    ours = fastest(row)
    if ours is None:
        return ["not measured"]
    return [w for w, bound in AGAINST.items() if w in row and ours > bound * row[w]]
