"""Operators whose results are views: what numpy finds out about strides, recorded."""

from __future__ import annotations

from typing import Any

from tenonnx_cpu.launch import Launch
from tenonnx_cpu.recorded import Recorded
from tenonnx_cpu.specialise import Call, Site, specialise


@specialise("Flatten", "Reshape", "Slice", "Split", "Squeeze", "Unsqueeze")
def specialise_view(site: Site, plain: Call) -> Call | None:
    """Takes what changes shapes as constants say; what must be copied, numpy copies."""
    inputs = site.node.inputs
    if any(inputs[n] is not None and site.constant(n) is None for n in range(1, len(inputs))):
        return None

    def call(*given: Any) -> Launch:
        return Launch(None, (), plain(*given))

    return Recorded(call)
