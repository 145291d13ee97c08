"""The results as a page of Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias

from bench.cuda.table import ROWS

Found: TypeAlias = Mapping[str, float]

TESTS, CONFORMANCE, KERNELS = "tests", "conformance", "kernels"
# Prefixes of names in the results, of measurements that are no row and of small networks.
SMALL: Final = "small "

OURS: Final = ("tenonnx", "tenonnx graph")

# The limits of a run's time, relative to torch's ways and to reading all weights once.
BOUNDS: Final = {"torch eager": 1.0, "torch.compile": 1.1, "torch graph": None, "limit": 1.3}

UNITS: Final = ("GB/s", "TFLOP/s", "host µs")

MORE: Final = {
    "tenonnx: first": "first run from a cold file",
    "tenonnx: weights MiB": "weights, MiB",
    "tenonnx: device MiB": "device, MiB",
    "torch eager: device MiB": "torch's",
}

# Of 16 bits, or of factors that are rounded to 10, through some layers.
LARGEST_ERROR: Final = 0.01

ABOUT: Final = """\
*limit*: what the device's memory takes to read all weights once, as fast as it copies.
*times*: what tenonnx's faster way takes of that, and of each of torch's ways.
*error*: the largest difference from the CPU provider's answers, in parts of the largest value.
*device*: all memory that a session took, with what cuBLAS and kernels take; *torch's*: what its
allocator did.
In bold what is more than it may be."""


def page(content: Mapping[str, Any]) -> str:
    """Return the page of what was found and what was not, with a ``remark`` if there is one."""
    versions = ", ".join(f"{name} {content[name]}" for name in ("cupy", "torch") if name in content)
    lines = [f"# {content['device']}", "", f"{versions}; {machine_line(content)}", ""]
    lines += [content["remark"], ""] if "remark" in content else []
    found = content["found"]
    if tests := found.get(TESTS):
        lines += [test_line(tests), ""]
    if cases := found.get(CONFORMANCE):
        lines += [conformance_line(cases), ""]
    if networks := {name: row for name, row in found.items() if name in ROWS}:
        lines += [*table(networks), ""]
    if small := {name: row for name, row in found.items() if name.startswith(SMALL)}:
        lines += [small_line(small), ""]
    if kernels := found.get(KERNELS):
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
    """Return the host in a few words."""
    host = content.get("machine", {})
    driver = content.get("driver", 0)
    words = [f"driver for CUDA {driver // 1000}.{driver % 1000 // 10}", host.get("cpu", "host")]
    words += [f"{name} {host[name]}" for name in ("python", "numpy", "tenonnx") if name in host]
    return ", ".join(words)


def test_line(tests: Found) -> str:
    """Return how many tests passed."""
    counts = ", ".join(f"{tests[n]} {n}" for n in ("passed", "failures", "errors", "skipped"))
    return f"tests/cuda: {counts}; {tests['seconds']:.0f} s."


def conformance_line(cases: Found) -> str:
    """Return how many of ONNX's cases passed with CUDA first in the list, and where they ran."""
    passed = {name: count for name, count in cases.items() if name != "cases"}
    where = "; ".join(f"{count} {name}" for name, count in passed.items())
    return f"ONNX's backend tests: {sum(passed.values())} of {cases['cases']} ({where})."


def small_line(found: Mapping[str, Found]) -> str:
    """Return which small networks ran, and how far their answers are from the CPU provider's."""
    ran = [f"{name.removeprefix(SMALL)} ({error(row)})" for name, row in found.items()]
    return f"Small networks, and their errors: {', '.join(ran)}."


def error(row: Found) -> str:
    """Return the larger difference of both ways' answers, in bold if it is too large."""
    errors = [row[f"{way}: error"] for way in OURS if f"{way}: error" in row]
    large = not all(one <= LARGEST_ERROR for one in errors)  # or no number at all
    return bold(f"{max(errors):.1g}", large) if errors else "–"


def table(found: Mapping[str, Found]) -> list[str]:
    """Return networks' milliseconds per run, and how many times torch's and the limit they are."""
    torchs = [name for name in BOUNDS if name != "limit"]
    bounds = [f"times {name}" + (f" (≤ {most})" if most else "") for name, most in BOUNDS.items()]
    header = ["", "torch in", *OURS, *torchs, "limit", *bounds, "error", *MORE.values()]
    lines = ["## Milliseconds per run", "", f"| {' | '.join(header)} |"]
    lines.append("|---|---|" + "---:|" * (len(header) - 2))
    for name, row in found.items():
        known = ROWS[name]
        against = dict(compared(known.streams, row))
        times = [ratio(against.get(what), most) for what, most in BOUNDS.items()]
        cells = [row.get(way) for way in (*OURS, *torchs)]
        cells.append(limit(row) if known.streams else None)
        kind = "float16" if known.half else "TF32"
        numbers = (*map(number, cells), *times, error(row), *(number(row.get(way)) for way in MORE))
        lines.append(f"| {' | '.join([known.about, kind, *numbers])} |")
    return [*lines, "", ABOUT]


def compared(streams: bool, row: Found) -> Iterator[tuple[str, float]]:
    """Yield how many times as long tenonnx's faster way takes as others, and as the limit."""
    ours = min((row[way] for way in OURS if way in row), default=None)
    for name in BOUNDS:
        other = row.get(name) if name != "limit" else limit(row) if streams else None
        if ours is not None and other:
            yield name, ours / other


def limit(row: Found) -> float | None:
    """Return the milliseconds in which weights can be read at least."""
    rate, weights = row.get("memory GB/s"), row.get("tenonnx: weights MiB")
    return None if not rate or not weights else 1e3 * weights * 2**20 / (1e9 * rate)


def ratio(value: float | None, most: float | None) -> str:
    """Return a ratio, in bold if it is more than it may be; a dash for none."""
    if value is None:
        return "–"
    return bold(f"{value:.2f}", most is not None and value > most)


def bold(text: str, so: bool) -> str:
    """Return a text, in bold if it is to be."""
    return f"**{text}**" if so else text


def kernel_table(found: Found) -> list[str]:
    """Return kernels' microseconds, what they read and compute a second, and Python's share.

    What is read is also in parts of what a copy reads and writes.
    """
    header = ["", "µs", *UNITS, "of a copy's GB/s"]
    lines = ["## Kernels", "", f"| {' | '.join(header)} |", "|---|" + "---:|" * (len(header) - 1)]
    copy = found.get("copy GB/s")
    for name, took in found.items():
        if not name.endswith(UNITS):
            rates = [found.get(f"{name} {unit}") for unit in UNITS]
            share = f"{100 * rates[0] / copy:.0f} %" if rates[0] and copy else "–"
            lines.append(f"| {' | '.join([name, number(took), *map(number, rates), share])} |")
    return lines


def number(value: float | None) -> str:
    """Return a figure, or a dash for none."""
    return "–" if value is None else f"{value:.3g}" if value < 1000 else f"{value:.0f}"
