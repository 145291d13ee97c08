"""The page: the rows that are lost in one table, a summary, and an area after the other."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from bench.cpu.compare import PEER_LIMIT
from bench.page.areas import AREAS, Area
from bench.page.figures import Figure

TITLES = ["row", "", "tenonnx", "onnxruntime", "ratio", "spread", "best of the others"]
INTRODUCTION = """# Benchmarks: the results

`python -m bench all` measures all of this and writes this page; with `--from-results` it writes it
from the files beside it. [The protocol](../README.md) says how. A ratio is tenonnx's figure over
onnxruntime's: below 1 is better. *Spread* is the least and the largest ratio of a round. *Best of
the others* is the engine besides onnxruntime that did best, and tenonnx's figure over its.
"""
LOST = f"""## What is lost

Rows in which onnxruntime is ahead, or another engine by more than {PEER_LIMIT:g}, the worst first.
"""


@dataclass(frozen=True)
class Section:
    """An area with results.

    Attributes:
        name: A key of ``AREAS``.
        path: The file of results.
        figures: What it says.
        machine: Where it was measured, and with what.
    """

    name: str
    path: Path
    figures: list[Figure]
    machine: Mapping[str, object]

    @property
    def area(self) -> Area:
        """What the results are of."""
        return AREAS[self.name]


def sections(folder: Path, ending: str = "") -> Iterator[Section]:
    """Yields the areas that a folder has results of; ``ending`` follows their names."""
    for name, area in AREAS.items():
        path = folder / f"{name}{ending}.json"
        if path.exists():
            machine = json.loads(path.read_text("utf-8"))["machine"]
            yield Section(name, path, area.read(path), machine)


def as_markdown(found: list[Section]) -> str:
    """Returns the page."""
    lost = [(section, figure) for section in found for figure in section.figures if figure.lost]
    lost.sort(key=lambda pair: -badness(pair[1]))
    parts = [INTRODUCTION, LOST]
    titles = ["area", *TITLES]
    parts.append(_table(titles, ([s.area.title, *cells(figure)] for s, figure in lost)))
    parts.append("## In short\n")
    titles = ["area", "rows", "geometric mean of ratios", "best", "worst", "lost"]
    parts.append(_table(titles, (_summary(section) for section in found)))
    return "\n".join([*parts, *("\n".join(_section(section)) for section in found)])


def badness(figure: Figure) -> float:
    """Returns by how much a row is lost; most, if it has no figures."""
    if figure.ratio is None:
        return float("inf")
    return max(figure.ratio, figure.peer[1] / PEER_LIMIT if figure.peer else 0.0)


def cells(figure: Figure) -> list[str]:
    """Returns the cells of a row."""
    if figure.ratio is None:
        note = f"not measured: {figure.note}".replace("|", "/")
        return [figure.label, figure.kind, note, *[""] * 4]
    spread = "{:.3g} to {:.3g}".format(*figure.spread) if figure.spread else ""
    peer = "{} {:.3g}".format(*figure.peer) if figure.peer else ""
    ratio = f"**{figure.ratio:.3g}**" if figure.ratio > 1 else f"{figure.ratio:.3g}"
    return [figure.label, figure.kind, figure.mine, figure.theirs, ratio, spread, peer]


def _summary(section: Section) -> list[str]:
    ratios = [figure.ratio for figure in section.figures if figure.ratio is not None]
    lost = str(sum(figure.lost for figure in section.figures))
    told = [f"[{section.area.title}](#{_anchor(section.area.title)})", str(len(section.figures))]
    if not ratios:
        return [*told, "", "", "", lost]
    numbers = (statistics.geometric_mean(ratios), min(ratios), max(ratios))
    return [*told, *(f"{number:.3g}" for number in numbers), lost]


def _anchor(title: str) -> str:
    return title.lower().replace(" ", "-").replace(",", "")


def _section(section: Section) -> Iterator[str]:
    yield f"## {section.area.title}\n"
    area, name = section.area, section.path.name
    yield f"The ratio is of {area.about}. `{area.command}`; figures in [{name}]({name}).\n"
    yield ", ".join(f"{key} {value}" for key, value in section.machine.items()) + ".\n"
    if section.path.with_suffix(".png").exists():
        yield f"![ratios]({section.path.stem}.png)\n"
    yield _table(TITLES, map(cells, section.figures))


def _table(titles: list[str], rows: Iterator[list[str]]) -> str:
    left = 2 if titles[0] == "row" else 3
    ends = ["---"] * left + ["---:"] * (len(titles) - left)
    lines = [titles, ends, *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
