"""Sums that are normalized at once, as transformers write them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tenonnx.graph import attribute
from tenonnx.planning.anchors import BROADCASTING_OPSET
from tenonnx.planning.fusion import Scope

if TYPE_CHECKING:
    import onnx_ir as ir

RESIDUAL_NORMS: Final = ("LayerNormalization", "RMSNormalization")

# The default of ``stash_type``, the type in which deviations are computed.
FLOAT32_STASH: Final = 1


def find_sum(norm: ir.Node, scope: Scope) -> ir.Node | None:
    """Return the Add before a normalization, if nobody reads mean or deviation.

    Others may read the sum, too.
    """
    add = scope.maker(norm.inputs[0], "Add")
    if add is None or (add.version or 1) < BROADCASTING_OPSET or None in add.inputs:
        return None
    if any(value.uses() or value.is_graph_output() for value in norm.outputs[1:]):
        return None
    is_other = (
        norm.inputs[0] in norm.inputs[1:]
        or attribute(norm, "stash_type", FLOAT32_STASH) != FLOAT32_STASH
    )
    return None if is_other else add
