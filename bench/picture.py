"""Ratios as a picture: the same for every benchmark."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bench.kernels import without_kernels
from bench.machine import tell
from bench.page.figures import Figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ROW_INCHES = 0.27
MARKERS = "osD^vPX*"
# A ratio above it is written beside its mark.
TOLD = 1.0


def draw(
    path: Path, figures: Sequence[Figure], title: str = "", beside: str = "onnxruntime"
) -> None:
    """Draw a line per row with a mark for each of its ratios, and what they vary by.

    Ratios are on a logarithmic axis: left of 1, less is taken than the other takes. Hollow marks
    are ratios to the best of other engines.

    Args:
        path: The picture; none is made where there is nothing that draws.
        figures: Those without a ratio are left out.
        title: Stands above, below a remark where numpy computes in place of kernels.
        beside: The other.
    """
    if not importlib.util.find_spec("matplotlib"):
        tell("no picture: matplotlib is not installed")
        return
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt
    from matplotlib.ticker import FuncFormatter, NullFormatter

    told = [figure for figure in figures if figure.ratio is not None]
    labels = list(dict.fromkeys(figure.label for figure in told))
    kinds = list(dict.fromkeys(figure.kind for figure in told))
    height = 1.6 + ROW_INCHES * len(labels) + 0.2 * (len(kinds) // 2)
    figure, axes = plt.subplots(figsize=(10, height), layout="constrained")
    for number, kind in enumerate(kinds):
        shift = 0.5 * ((number + 0.5) / len(kinds) - 0.5)
        _marks(axes, [each for each in told if each.kind == kind], labels, number, shift)
    axes.axvline(1, color="0.2", linewidth=1.2)
    for line in range(0, len(labels), 2):
        axes.axhspan(line - 0.5, line + 0.5, color="0.96", zorder=0)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    low, high = axes.get_xlim()
    few = FuncFormatter(lambda x, _: f"{x:g}" if f"{x:.0e}"[0] in "25" else "")
    axes.xaxis.set_minor_formatter(few if high / low < 100 else NullFormatter())
    axes.set_yticks(range(len(labels)), labels)
    axes.set_ylim(len(labels) - 0.5, -0.5)
    axes.grid(axis="x", which="both", color="0.9")
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    hollow = " (hollow: / best of the others)" if any(each.peer for each in told) else ""
    axes.set_xlabel(f"tenonnx / {beside}{hollow}")
    above = filter(None, (without_kernels(), title))
    figure.suptitle("\n".join(above), fontsize="medium")
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize="small")
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _marks(
    axes: Axes, figures: Sequence[Figure], labels: Sequence[str], number: int, shift: float
) -> None:
    """Draw the marks of one kind."""
    color, marker = f"C{number}", MARKERS[number % len(MARKERS)]
    places = [labels.index(figure.label) + shift for figure in figures]
    ratios = [figure.ratio or 0.0 for figure in figures]
    axes.plot(ratios, places, marker, color=color, label=figures[0].kind, markersize=5)
    for figure, place, ratio in zip(figures, places, ratios, strict=True):
        if figure.spread:
            axes.plot(figure.spread, [place, place], color=color, linewidth=1)
        if figure.peer:
            axes.plot(figure.peer.ratio, place, marker, color=color, mfc="white", markersize=5)
        if ratio > TOLD:
            right = max(ratio, *(figure.spread or (ratio,)))
            axes.annotate(
                f" {ratio:.3g}", (right, place), va="center", fontsize="x-small", color=color
            )
