"""The ranges that a model's activations have on calibration data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import onnx_ir as ir

from tenonnx import InferenceSession, InvalidArgument
from tenonnx.formats.convert import Progress
from tenonnx_quant.feeds import Feeds
from tenonnx_quant.histogram import Histogram

Method = Literal["minmax", "percentile", "entropy"]


@dataclass(frozen=True)
class Range:
    """The range of an activation's numbers, or the limits at which they are cut."""

    low: float
    high: float
    dtype: np.dtype[Any]


def calibrate(
    model: ir.Model,
    names: Sequence[str],
    feeds: Feeds,
    method: Method,
    percentile: float,
    progress: Progress,
) -> dict[str, Range]:
    """Run a model on calibration data and return the range of each value that is floats.

    Args:
        model: The float model, which stays as it is.
        names: Values of its main graph.
        feeds: The data; read once for ``minmax`` and twice for the others.
        method: ``minmax`` takes all numbers, ``percentile`` leaves out the most extreme ones,
            ``entropy`` cuts where integers tell the others apart best.
        percentile: The share, in percent, that ``percentile`` keeps.
        progress: Hears of every feed.

    Raises:
        InvalidArgument: The method is another one, or an activation is not finite.
    """
    if method not in ("minmax", "percentile", "entropy"):
        raise InvalidArgument(f"ranges are found by minmax, percentile or entropy, not {method!r}")
    session = InferenceSession(_with_outputs(model, names))
    ranges: dict[str, Range] = {}
    passes = 1 if method == "minmax" else 2
    total = sum(1 for _ in feeds()) * passes
    for name, x, done in _runs(session, names, feeds):
        if x.size:
            ranges[name] = _joined(name, ranges.get(name), x)
        progress("finding ranges", done / total)
    if method == "minmax":
        return ranges
    # In a second pass, since a histogram's borders are the extremes that the first one found:
    # keeping the activations instead would take memory that grows with the data.
    histograms = {name: Histogram(found.low, found.high) for name, found in ranges.items()}
    for name, x, done in _runs(session, list(ranges), feeds):
        histograms[name].add(x)
        progress("counting numbers", (total / 2 + done) / total)
    return {name: _cut(histograms[name], ranges[name], method, percentile) for name in ranges}


def _with_outputs(model: ir.Model, names: Sequence[str]) -> ir.Model:
    model = model.clone()
    found = {value.name: value for node in model.graph for value in node.outputs}
    found |= {value.name: value for value in model.graph.inputs}
    given = {value.name for value in model.graph.outputs}
    for name in names:
        value = found[name]
        if name in given:
            continue
        if value.type is None:
            value.type = ir.TensorType(ir.DataType.FLOAT)
        model.graph.outputs.append(value)
    return model


def _runs(
    session: InferenceSession, names: Sequence[str], feeds: Feeds
) -> Iterator[tuple[str, Any, int]]:
    """Yield every activation of floats, its name, and how many feeds are done."""
    for done, feed in enumerate(feeds(), 1):
        for name, x in zip(names, session.run(list(names), feed), strict=True):
            if isinstance(x, np.ndarray) and x.dtype in (np.float32, np.float16):
                yield name, x, done


def _joined(name: str, found: Range | None, x: Any) -> Range:
    low, high = float(x.min()), float(x.max())
    if not np.isfinite(low + high):
        raise InvalidArgument(
            f"activation {name!r} is not finite on the calibration data",
            hint="leave the nodes around it out of what is quantized",
        )
    if found is not None:
        low, high = min(low, found.low), max(high, found.high)
    return Range(low, high, x.dtype)


def _cut(histogram: Histogram, found: Range, method: Method, percentile: float) -> Range:
    cut = histogram.entropy() if method == "entropy" else histogram.percentile(percentile / 100)
    return Range(*cut, found.dtype)
