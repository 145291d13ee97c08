"""Normalised sums of com.microsoft."""

from __future__ import annotations

from typing import Any

from tenonnx_cpu.norms.norms import Normalise, is_read
from tenonnx_cpu.recording.recorded import Recorded
from tenonnx_cpu.specialise import Call, Site, specialise


@specialise("SkipLayerNormalization", "SkipSimplifiedLayerNormalization", domain="com.microsoft")
def specialise_skip_norm(site: Site, plain: Call) -> Call | None:
    """Takes sums of equal shapes without a bias, unless mean or deviation are asked for."""
    if is_read(site.node.outputs[1:3]):
        return None
    centred = site.node.op_type == "SkipLayerNormalization"
    epsilon = site.attribute("epsilon", 1e-12)
    norm = Normalise(epsilon, centred, site.threads, lambda y, total: (y, None, None, total))

    def call(x: Any, skip: Any, gamma: Any, *rest: Any) -> Any:
        beta, bias, *_ = (*rest, None, None) if centred else (None, *rest, None)
        made = norm(x, skip, gamma, beta) if bias is None else None
        return plain(x, skip, gamma, *rest) if made is None else made

    return Recorded(call)
