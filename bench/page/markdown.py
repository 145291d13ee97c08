"""The page: the rows that are lost in one table, a summary, and an area after the other."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from bench.cpu.compare import PEER_LIMIT
from bench.first.states import PEER
from bench.machine import BUSY
from bench.page.areas import AREAS, Area
from bench.page.figures import Figure
from bench.page.reasons import Reasons, Tried, why

# From so many cores busy with other work on, the page says so: ratios are less certain.
OTHERS = 0.3

TITLES = ["row", "measured", "tenonnx", PEER, "ratio", "spread", "best of the others"]
LOST_TITLES = ["area", "row", "measured", "tenonnx", "the other", "", "ratio", "spread", "why"]
INTRODUCTION = """# Benchmarks: the results

`python -m bench all` measures all of this and writes this page; with `--from-results` it writes it
from the files beside it. [The protocol](../README.md) says how. A **ratio** is tenonnx's time or
memory over the other's: below 1 is better. *Spread* is the least and the largest ratio of a round.
*Best of the others* is the engine besides onnxruntime that did best, its figure, and tenonnx's over
it. Pictures have a mark per ratio, and a line for its spread; those to the best of the others are
hollow. *All threads* are as many as the machine has cores. Each area names the machine, the
versions and the commit that it was measured with.
"""
LOST = f"""## What is lost

Rows in which onnxruntime is ahead (of serving, what is named), or another engine by more than
{PEER_LIMIT:g}, the worst first.
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
        """The area that the results belong to."""
        return AREAS[self.name]


def sections(folder: Path, ending: str = "") -> Iterator[Section]:
    """Yield the areas with results in a folder; ``ending`` follows their names."""
    for name, area in AREAS.items():
        path = folder / f"{name}{ending}.json"
        if path.exists():
            machine = json.loads(path.read_text("utf-8"))["machine"]
            yield Section(name, path, area.read(path), machine)


def as_markdown(found: list[Section], reasons: Reasons, tried: Tried | None = None) -> str:
    """Return the page; of rows that are lost it says why, and what was tried, if that is known."""
    lost = [(section, figure) for section in found for figure in section.figures if figure.lost]
    lost.sort(key=lambda pair: -pair[1].badness)
    parts = [INTRODUCTION, LOST]
    parts.append(_table(LOST_TITLES, (lost_cells(*pair, reasons) for pair in lost), left=3))
    parts += _designs(lost, tried or {})
    parts.append("## In short\n")
    titles = ["area", "rows", "lost", "geometric mean of ratios", "best", "worst"]
    parts.append(_table(titles, (_summary(section) for section in found), left=1))
    return "\n".join([*parts, *("\n".join(_section(section)) for section in found)])


def _designs(lost: Iterable[tuple[Section, Figure]], tried: Tried) -> list[str]:
    """Return lines about what was tried for rows that are lost."""
    rows = {(s.name, f.name): f"{s.area.title}, {f.label}" for s, f in lost}
    known = {
        title: designs for (area, name), title in rows.items()
        if (designs := tried.get(area, {}).get(name))
    }  # fmt: skip
    lines = [f"- {title}: {'; '.join(designs)}." for title, designs in known.items()]
    return ["What was tried, and what came of it:\n", *lines, ""] if lines else []


def lost_cells(section: Section, figure: Figure, reasons: Reasons) -> list[str]:
    """Return the cells of a row that is lost: the engine that it is furthest behind of."""
    reason = why(reasons, section.name, figure)
    start = [section.area.title, figure.label, figure.kind]
    if figure.ratio is None:
        return [*start, *[""] * 5, f"not measured: {figure.note}".replace("|", "/")]
    other = figure.worst
    spread = _spread(figure) if other.ratio == figure.ratio else ""
    return [*start, figure.mine, other.figure, other.name, f"{other.ratio:.3g}", spread, reason]


def cells(figure: Figure) -> list[str]:
    """Return the cells of a row."""
    if figure.ratio is None:
        note = figure.mine or f"not measured: {figure.note}".replace("|", "/")
        return [figure.label, figure.kind, note, figure.theirs, *[""] * 3]
    other = figure.peer
    peer = f"{other.name}: {other.figure}, {other.ratio:.3g}" if other else ""
    ratio = f"**{figure.ratio:.3g}**" if figure.ratio > 1 else f"{figure.ratio:.3g}"
    return [figure.label, figure.kind, figure.mine, figure.theirs, ratio, _spread(figure), peer]


def _spread(figure: Figure) -> str:
    return "{:.3g} to {:.3g}".format(*figure.spread) if figure.spread else ""


def _summary(section: Section) -> list[str]:
    ratios = [figure.ratio for figure in section.figures if figure.ratio is not None]
    lost = str(sum(figure.lost for figure in section.figures))
    title = section.area.title
    told = [f"[{title}](#{_anchor(title)})", str(len(section.figures)), lost]
    if not ratios:
        return [*told, "", "", ""]
    numbers = (statistics.geometric_mean(ratios), min(ratios), max(ratios))
    return [*told, *(f"{number:.3g}" for number in numbers)]


def _anchor(title: str) -> str:
    return title.lower().replace(" ", "-").replace(",", "")


def _section(section: Section) -> Iterator[str]:
    yield f"## {section.area.title}\n"
    area, name = section.area, section.path.name
    yield f"{area.about} `{area.command}`; all figures in [{name}]({name}).\n"
    yield ", ".join(f"{key} {value}" for key, value in section.machine.items()) + ".\n"
    busy = section.machine.get(BUSY, 0.0)
    if isinstance(busy, float) and busy > OTHERS:
        yield "**Measured on a busy machine**: times of both are too long, ratios uncertain.\n"
    if section.path.with_suffix(".png").exists():
        yield f"![ratios]({section.path.stem}.png)\n"
    titles = [area.beside if title == PEER else title for title in TITLES]
    yield _table(titles, map(cells, section.figures), left=2)


def _table(titles: list[str], rows: Iterable[list[str]], *, left: int) -> str:
    ends = ["---"] * left + ["---:"] * (len(titles) - left)
    lines = [titles, ends, *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
