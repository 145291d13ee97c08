"""What a Clip clips to."""

from __future__ import annotations

import math

import numpy as np

from tenonnx_cpu.specialise import Site


def clip_bounds(site: Site) -> tuple[float, float] | None:
    """Returns a Clip's bounds, infinite where it has none; ``None`` if they are not known."""
    inputs = site.node.inputs
    if (site.node.version or 1) < 11:
        return float(site.attribute("min", -math.inf)), float(site.attribute("max", math.inf))
    bounds = [-math.inf, math.inf]
    for place, given in enumerate(inputs[1:3]):
        bound = site.scalar(place + 1)
        if given is not None and (bound is None or np.isnan(bound).any()):
            return None
        bounds[place] = bounds[place] if bound is None else float(bound.reshape(()))
    return bounds[0], bounds[1]
