"""Ratios as a picture: the same for every benchmark."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

BREADTH = 0.72
"""Of the bars of a row together, in units of the distance of rows."""


def bars(
    path: Path, series: Mapping[str, Mapping[str, float]], limits: Mapping[str, float], axis: str
) -> None:
    """Draws a row of bars for each limit, one per series that has it, and a line at the limit.

    Args:
        path: The picture.
        series: By title, ratios by the rows' labels.
        limits: By label; their order is the rows'.
        axis: What is measured.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    labels = list(limits)
    figure, axes = plt.subplots(figsize=(8, 1.4 + 0.36 * len(labels)), layout="constrained")
    height = BREADTH / len(series)
    for number, (title, ratios) in enumerate(series.items()):
        shift = (number + 0.5) * height - BREADTH / 2
        places = [labels.index(label) + shift for label in ratios]
        axes.barh(places, list(ratios.values()), height=0.94 * height, label=title)
    for position, limit in enumerate(limits.values()):
        axes.plot([limit, limit], [position - 0.42, position + 0.42], color="0.2", linewidth=1.5)
    axes.set_yticks(range(len(labels)), labels)
    axes.set_ylim(len(labels) - 0.5, -0.5)
    axes.set_xlabel(axis)
    axes.grid(axis="x", color="0.9")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside upper center", ncols=len(series), frameon=False)
    figure.savefig(path, dpi=120)
    plt.close(figure)
