"""Language models on the page of results: each figure beside onnxruntime-genai's."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.page.figures import Figure
from bench.report import show

PEER = "onnxruntime-genai"
MODULES = {"tenonnx": "tenonnx_generate", PEER: "onnxruntime_genai"}
COLUMNS = {
    "import": "importing the engine and opening a folder",
    "load": "opening a folder",
    "first token": "import, opening and the first token",
    "prompt": "a prompt",
    "token": "a token",
    "private": "private MiB of a process",
    "private of four": "private MiB of each of four processes",
}
# Rows that are compared with other rows of tenonnx.
OWN = {
    "cached prefix": ("first token, 480 of 512 tokens cached", "none cached"),
    "guidance": ("a token, held to a schema", "free"),
    "four beams": ("a token of four beams", "a token of each of four rows"),
    "four adapters": ("a token of each of four rows, four adapters", "one adapter"),
    "four at once": ("a token of each of four rows", "four tokens of one row"),
}

Result = Mapping[str, Any]


def read(path: Path) -> list[Figure]:
    """Return the figures of a file of results."""
    return [each for row in json.loads(path.read_text("utf-8"))["rows"] for each in figures(row)]


def figures(result: Result) -> Iterator[Figure]:
    """Yield the figures of one folder."""
    turns, name = result["turns"], result["folder"]
    for column, words in COLUMNS.items():
        if not all(column in facts for each in turns.values() for facts in each):
            continue  # a result of before it was measured
        mine, theirs = ([facts[column] for facts in turns[MODULES[e]]] for e in ("tenonnx", PEER))
        ratios = [a / b for a, b in zip(mine, theirs, strict=True)]
        ours, other = (_shown(column, statistics.median(each)) for each in (mine, theirs))
        spread = min(ratios), max(ratios)
        ratio = statistics.median(ratios)
        yield Figure(name, name, words, ours, other, ratio, spread, against=PEER)
    for row, (words, against) in OWN.items():
        if row in result["own"]:
            times = result["own"][row]
            ours, other = (_shown(row, seconds) for seconds in times)
            ratio = times[0] / times[1]
            yield Figure(name, name, words, ours, other, ratio, against=against)
    grown = result["own"]["growth"]
    yield Figure(name, name, "growth of 200 generators", f"{grown / (1 << 20):.1f} MiB")
    same, count = equal(turns)
    yield Figure(name, name, "equal tokens, greedy", f"{same} of {count}")


def equal(turns: Mapping[str, Any]) -> tuple[int, int]:
    """Return how many tokens engines have in common before they part, and of how many."""
    pairs = list(zip(*(turns[module][0]["tokens"] for module in MODULES.values()), strict=True))
    parted = [n for n, (one, other) in enumerate(pairs) if one != other]
    return min(parted, default=len(pairs)), len(pairs)


def as_markdown(rows: Sequence[Result]) -> str:
    """Return a table."""
    lines = [
        "| folder | what | tenonnx | the other | ratio |",
        "| --- | --- | ---: | ---: | ---: |",
    ]
    for each in (figure for row in rows for figure in figures(row)):
        ratio = "" if each.ratio is None else f"{each.ratio:.2f}"
        lines.append(f"| {each.label} | {each.kind} | {each.mine} | {each.theirs} | {ratio} |")
    return "\n".join(lines) + "\n"


def _shown(column: str, value: float) -> str:
    return f"{value / (1 << 20):.1f}" if column.startswith("private") else show("_s", value)
