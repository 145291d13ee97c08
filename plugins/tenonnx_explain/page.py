"""A model's explanation as one HTML page, without a network: the graph, its nodes, transforms."""

from __future__ import annotations

import json
from html import escape
from importlib.resources import files
from string import Template
from typing import Any

from tenonnx_explain.boxes import Box, Boxes, boxes_of, shapes
from tenonnx_explain.layers import BOX_HEIGHT, Drawing, draw

COLORS = ("#2f6fde", "#1f9d61", "#c2571a", "#8a4fd0", "#b3284f", "#0f8a96", "#8a7a12")
ENDS = {"input": "#6b7280", "output": "#6b7280"}

# Width of a character of shapes, twice, because they begin at the middle of a box.
LETTER = 12.0

# The most nodes with details on the page.
MAX_LISTED = 5000


def as_page(report: dict[str, Any]) -> str:
    """Return the page for a report of ``explain_model``."""
    drawn = boxes_of(report)
    names = dict.fromkeys(node["provider"] for node in report["nodes"])
    colors = {name: COLORS[n % len(COLORS)] for n, name in enumerate(names)} | ENDS
    listed = report["nodes"][:MAX_LISTED]
    # A model's names must not contain the end of a script element.
    data = json.dumps([_details(node) for node in listed]).replace("</", "<\\/")
    return Template(_file("page.html")).substitute(
        title=escape(report["model"].rsplit("/", 1)[-1] or "model"),
        style=_file("graph.css"),
        summary=_summary(report),
        legend=_legend(report, colors),
        left_out=_left_out(drawn, len(report["nodes"]) - len(listed)),
        graph=_svg(drawn, colors),
        transforms=_transforms(report["transforms"]),
        calls=_calls(report["calls"]),
        operators=_operators(report),
        data=data,
        script=_file("graph.js"),
    )


def _file(name: str) -> str:
    return files("tenonnx_explain").joinpath(name).read_text("utf-8")


def _summary(report: dict[str, Any]) -> str:
    return (
        f"{report['nodes_before']} nodes before transforms, {report['nodes_after']} after, "
        f"in {report['calls']['count']} calls"
    )


def _legend(report: dict[str, Any], colors: dict[str, str]) -> str:
    counts = report["placement"]["counts"]
    return " ".join(
        f'<span><i style="background:{colors[name]}"></i>{escape(name)} {number}</span>'
        for name, number in counts.items()
    )


def _left_out(drawn: Boxes, unlisted: int) -> str:
    told = []
    if drawn.left_out:
        told.append(f"{drawn.left_out} more nodes are not drawn")
    if unlisted > 0:
        told.append(f"{unlisted} more nodes have no details here")
    if any(len(box.rows) > 1 for box in drawn.boxes):
        told.append("chains of nodes are one box")
    return f'<p class="hint">{"; ".join(told)}.</p>' if told else ""


def _details(node: dict[str, Any]) -> dict[str, Any]:
    kept = ("name", "operator", "version", "provider", "made_by", "origin", "call", "text", "types")
    reasons = "; ".join(f"{name}: {why}" for name, why in node["reasons"].items())
    return {**{key: node[key] for key in kept}, "reasons": reasons}


def _svg(drawn: Boxes, colors: dict[str, str]) -> str:
    widths = [max(46.0, 7.0 * len(_shown(box)) + 18) for box in drawn.boxes]
    told = _shapes(drawn)
    room = [max(width, LETTER * len(told.get(at, ""))) for at, width in enumerate(widths)]
    drawing = draw(room, drawn.edges)
    parts = [_edge(drawing, edge, ", ".join(types)) for edge, types in drawn.edges.items()]
    for at, text in told.items():
        x, y = drawing.places[at]
        place = f'x="{x + 5:.0f}" y="{y + BOX_HEIGHT / 2 + 11:.0f}"'
        parts.append(f'<text class="shape" {place}>{escape(text)}</text>')
    for box, width, (x, y) in zip(drawn.boxes, widths, drawing.places, strict=True):
        rows = ",".join(map(str, box.rows))
        kind, radius = ("end", 13) if box.provider in ENDS else ("node", 4)
        middle = f'x="{width / 2:.0f}" y="{BOX_HEIGHT / 2 + 4:.0f}"'
        parts.append(
            f'<g class="{kind}" data-rows="{rows}" data-text="{escape(box.label)}" '
            f'transform="translate({x - width / 2:.0f},{y - BOX_HEIGHT / 2:.0f})">'
            f'<rect width="{width:.0f}" height="{BOX_HEIGHT:.0f}" rx="{radius}" '
            f'fill="{colors[box.provider]}"/>'
            f"<text {middle}>{escape(_shown(box))}</text></g>"
        )
    width, height = drawing.width, drawing.height
    return (
        f'<svg viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
        f'data-width="{width:.0f}" xmlns="http://www.w3.org/2000/svg">{"".join(parts)}</svg>'
    )


def _shapes(drawn: Boxes) -> dict[int, str]:
    """Return, by box, the shapes of its outputs, to write below it."""
    made: dict[int, list[str]] = {}
    for (start, _), types in drawn.edges.items():
        made.setdefault(start, []).extend(types)
    return {box: text for box, types in made.items() if (text := _short(shapes(types)))}


def _shown(box: Box) -> str:
    return _short(box.label)


def _short(text: str) -> str:
    return text if len(text) <= 34 else text[:16] + "…" + text[-16:]


def _edge(drawing: Drawing, edge: tuple[int, int], types: str) -> str:
    (x, y), end = drawing.places[edge[0]], drawing.places[edge[1]]
    points = [*drawing.routes[edge], (end[0], end[1] - BOX_HEIGHT / 2)]
    y += BOX_HEIGHT / 2
    path = f"M{x:.0f} {y:.0f}"
    for to_x, to_y in points:
        middle = (y + to_y) / 2
        path += f"C{x:.0f} {middle:.0f} {to_x:.0f} {middle:.0f} {to_x:.0f} {to_y:.0f}"
        x, y = to_x, to_y
    title = f"<title>{escape(types)}</title>" if types else ""
    return f'<path d="{path}">{title}</path>'


def _transforms(transforms: list[dict[str, Any]]) -> str:
    told = [t for t in transforms if t["modified"] or t["notes"] or t["nearly"]]
    idle = ", ".join(escape(t["name"]) for t in transforms if t not in told)
    last = f'<p class="hint">Nothing to do for {idle}.</p>' if idle else ""
    return "".join(map(_transform, told)) + last or "<p>none ran</p>"


def _transform(change: dict[str, Any]) -> str:
    pairs = (f"{name} {old} → {new}" for name, (old, new) in change["operators"].items())
    changed = ", ".join(pairs) or ("rewired" if change["modified"] else "nothing")
    parts = [
        *(f"<li>{escape(text)}</li>" for text in change["notes"]),
        *(f'<li class="near">{escape(text)}</li>' for text in change["nearly"]),
    ]
    lists = f"<ul>{''.join(parts)}</ul>" if parts else ""
    lines = [
        *(f"- {text}" for text in change["removed"]),
        *(f"+ {text}" for text in change["added"]),
        *(f"~ {pair['before']}\n  {pair['after']}" for pair in change["changed"]),
    ]
    shown = "\n".join(lines[:MAX_LISTED])
    code = f"<pre>{escape(shown)}</pre>" if lines else ""
    state = "did" if change["modified"] else "idle"
    near = " · nearly" if change["nearly"] else ""
    return (
        f'<details class="{state}"><summary><b>{escape(change["name"])}</b> '
        f"<em>{change['level']}{near}</em><br>{escape(changed)}</summary>{lists}{code}</details>"
    )


def _calls(calls: dict[str, Any]) -> str:
    rows = "".join(
        f"<tr><td>{times}</td><td>{escape(kinds)}</td></tr>"
        for kinds, times in calls["joined"].items()
    )
    table = f"<table>{rows}</table>" if rows else "<p>none: every node is a call of its own</p>"
    nearly = "".join(f'<li class="near">{escape(text)}</li>' for text in calls["nearly"])
    return f"{table}<ul>{nearly}</ul>" if nearly else table


def _operators(report: dict[str, Any]) -> str:
    before, after = report["operators_before"], report["operators_after"]
    rows = "".join(
        f"<tr><td>{escape(name)}</td><td>{before.get(name, 0)}</td>"
        f"<td>{after.get(name, 0)}</td></tr>"
        for name in dict.fromkeys([*before, *after])
    )
    return f"<table><tr><th>operator</th><th>before</th><th>after</th></tr>{rows}</table>"
