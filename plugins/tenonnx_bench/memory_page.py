"""A page that draws the memory of processes with a model."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

from tenonnx.cli.output import count, duration, size

if TYPE_CHECKING:
    from tenonnx_bench.sampling import Course

WIDTH, LABEL, BAR, GAP = 860, 110, 26, 12
# Height of the drawing over time, in pixels as the others.
PLOT = 260

# The most points of a line: there are no more pixels.
POINTS = 600


def as_html(model: str, found: Mapping[str, Course]) -> str:
    """Return a page that needs no other file.

    Args:
        model: Its path.
        found: Each contender's measurement; the first one's report is shown.
    """
    (first, *_) = found.values()
    processes = count(len(first.processes), "process", "processes")
    peaks = {name: (c.peak.private, c.peak.mapped) for name, c in found.items()}
    steady = {name: (c.steady.private, c.steady.mapped) for name, c in found.items()}
    top = max(1, *map(sum, peaks.values()), *map(sum, steady.values()))
    template = Template(files("tenonnx_bench").joinpath("memory.html").read_text("utf-8"))
    return template.substitute(
        title=html.escape(Path(model).name),
        processes=processes,
        peak=_bars(peaks, top),
        steady=_bars(steady, top),
        course=_lines(found),
        figures=_figures(found),
        report=html.escape(first.told.get("report", "")),
    )


def _bars(values: Mapping[str, tuple[int, int]], top: float) -> str:
    """Draw private and mapped bytes, one after the other on one line per contender."""
    room = WIDTH - LABEL - 270
    parts = []
    for index, (name, (private, mapped)) in enumerate(values.items()):
        y = index * (BAR + GAP)
        split, end = (room * amount / top for amount in (private, private + mapped))
        words = f"{size(private)} private, {size(mapped)} mapped"
        parts += [
            f'<text x="0" y="{y + 18}">{html.escape(name)}</text>',
            f'<rect class="c{index}" x="{LABEL}" y="{y}" width="{split:.1f}" height="{BAR}"/>',
            f'<rect class="c{index} mapped" x="{LABEL + split:.1f}" y="{y}" '
            f'width="{end - split:.1f}" height="{BAR}"/>',
            f'<text class="soft" x="{LABEL + end + 8:.1f}" y="{y + 18}">{words}</text>',
        ]
    height = len(values) * (BAR + GAP)
    return f'<svg viewBox="0 0 {WIDTH} {height}" role="img">{"".join(parts)}</svg>'


def _lines(found: Mapping[str, Course]) -> str:
    """Draw private and mapped memory over time."""
    samples = [sample for course in found.values() for sample in course.samples]
    end = max(sample.seconds for sample in samples) or 1
    top = max(1, *(max(sample.private, sample.mapped) for sample in samples))
    room = WIDTH - LABEL
    parts = [_grid(top, end)]
    for index, (name, course) in enumerate(found.items()):
        for kind in ("mapped", "private"):
            points = [
                (LABEL + room * s.seconds / end, PLOT - PLOT * getattr(s, kind) / top)
                for s in course.samples
            ]
            steps = "L".join(f"{x:.1f} {y:.1f}" for x, y in _thinned(points))
            style = f"c{index} mapped" if kind == "mapped" else f"c{index}"
            parts.append(f'<path class="{style}" d="M{steps}"/>')
        x, words = LABEL + index * 300, f"{html.escape(name)}: private, dashed: mapped"
        parts.append(
            f'<rect class="c{index}" x="{x}" y="{PLOT + 36}" width="12" height="12"/>'
            f'<text x="{x + 18}" y="{PLOT + 47}">{words}</text>'
        )
    box = f"0 -12 {WIDTH} {PLOT + 68}"
    return f'<svg viewBox="{box}" role="img">{"".join(parts)}</svg>'


def _grid(top: float, end: float) -> str:
    parts = []
    for quarter in range(5):
        y = PLOT - PLOT * quarter / 4
        parts.append(
            f'<line class="grid" x1="{LABEL}" x2="{WIDTH}" y1="{y}" y2="{y}"/>'
            f'<text class="soft" x="{LABEL - 10}" y="{y + 4}" text-anchor="end">'
            f"{size(top * quarter / 4)}</text>"
        )
        x, anchor = LABEL + (WIDTH - LABEL) * quarter / 4, "end" if quarter == 4 else "start"
        words = duration(end * quarter / 4) if quarter else "0"
        parts.append(
            f'<text class="soft" x="{x}" y="{PLOT + 20}" text-anchor="{anchor}">{words}</text>'
        )
    return "".join(parts)


def _thinned(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the highest point of every interval, and the last of all, so that no peak is lost."""
    step = -(-len(points) // POINTS)
    stretches = (points[i : i + step] for i in range(0, len(points), step))
    return [*(min(stretch, key=lambda point: point[1]) for stretch in stretches), points[-1]]


def _figures(found: Mapping[str, Course]) -> str:
    rows = []
    for name, course in found.items():
        peak, steady = course.peak, course.steady
        amounts = (
            peak.private,
            steady.private,
            peak.mapped,
            steady.mapped,
            course.proportional,
            course.code,
        )
        cells = "".join(f"<td>{size(amount)}" for amount in amounts)
        rows.append(f"<tr><td>{html.escape(name)}{cells}<td>{duration(course.loaded)}")
    head = "".join(
        f"<th>{words}"
        for words in (
            "",
            "private, peak",
            "private, after",
            "mapped, peak",
            "mapped, after",
            "all together (PSS)",
            "private, code alone",
            "opened after",
        )
    )
    return f'<div class="wide"><table><tr>{head}{"".join(rows)}</table></div>'
