"""Normalised sums of com.microsoft, and the root-mean-square norm under its older name."""

from __future__ import annotations

from typing import Any

from tenonnx_cpu.norms.norms import Normalise
from tenonnx_cpu.recording.recorded import Recorded
from tenonnx_cpu.specialise import Call, Site, specialise


def _wanted(site: Site, *positions: int) -> bool:
    """Says whether somebody reads one of the outputs."""
    outputs = site.node.outputs
    return any(
        outputs[n].uses() or outputs[n].is_graph_output() for n in positions if n < len(outputs)
    )


def _first_of_two(y: Any, _total: Any) -> Any:
    return y, None


def _outer(y: Any, total: Any) -> Any:
    return y, None, None, total


@specialise("SimplifiedLayerNormalization")
@specialise("SimplifiedLayerNormalization", domain="com.microsoft")
def simplified_layer_norm(site: Site, plain: Call) -> Call | None:
    """Takes the last axis, unless the deviation is asked for."""
    if _wanted(site, 1):
        return None
    axis = site.attribute("axis", -1)
    norm = Normalise(site.attribute("epsilon", 1e-5), False, site.threads, _first_of_two)

    def call(x: Any, scale: Any) -> Any:
        last = axis == -1 or axis == x.ndim - 1
        made = norm(x, None, scale, None) if last else None
        return plain(x, scale) if made is None else made

    return Recorded(call)


@specialise("SkipSimplifiedLayerNormalization", domain="com.microsoft")
def skip_simplified_layer_norm(site: Site, plain: Call) -> Call | None:
    """Takes sums of equal shapes without a bias, unless mean or deviation are asked for."""
    if _wanted(site, 1, 2):
        return None
    norm = Normalise(site.attribute("epsilon", 1e-12), False, site.threads, _outer)

    def call(x: Any, skip: Any, gamma: Any, bias: Any = None) -> Any:
        made = norm(x, skip, gamma, None) if bias is None else None
        return plain(x, skip, gamma, bias) if made is None else made

    return Recorded(call)


@specialise("SkipLayerNormalization", domain="com.microsoft")
def skip_layer_norm(site: Site, plain: Call) -> Call | None:
    """Takes sums of equal shapes without a bias, unless mean or deviation are asked for."""
    if _wanted(site, 1, 2):
        return None
    norm = Normalise(site.attribute("epsilon", 1e-12), True, site.threads, _outer)

    def call(x: Any, skip: Any, gamma: Any, beta: Any = None, bias: Any = None) -> Any:
        made = norm(x, skip, gamma, beta) if bias is None else None
        return plain(x, skip, gamma, beta, bias) if made is None else made

    return Recorded(call)
