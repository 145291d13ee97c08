"""LSTM with weights of bytes: made real once, for every step reads all of them."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np

from tenonnx_cpu.buffers import F32
from tenonnx_cpu.capture.capturable import Capturable
from tenonnx_cpu.fuse import Fused, Scope, fusion
from tenonnx_cpu.kernel_selection import NDArray, Site
from tenonnx_cpu.recurrent.operator import layer_of

if TYPE_CHECKING:
    import onnx_ir as ir

WEIGHTS = ((1, 8, 9), (2, 10, 11))
"""The places of the inputs' and the recurrent weights, with their scales and zero points."""


@fusion("DynamicQuantizeLSTM", domain="com.microsoft")
def fuse_quantized(node: ir.Node, scope: Scope) -> Fused | None:
    """Takes constant weights, unless copies of weights are not wanted."""
    site = scope.site(node)
    layer = layer_of(site, "LSTM") if scope.packs and len(node.inputs) == 12 else None
    if layer is None or node.inputs[7] is not None:
        return None
    constants = [[site.constant(place) for place in places] for places in WEIGHTS]
    if any(value is None for values in constants for value in values):
        return None
    w, r = (
        site.derived("lstm-real:1", places, functools.partial(real, site, places))
        for places in WEIGHTS
    )
    plain = scope.plain(node).call
    (w8, *scale_w), (r8, *scale_r) = constants
    single = len(node.outputs) == 1  # of which a step returns no tuple

    def otherwise(x: Any, b: Any, lengths: Any, h: Any, c: Any) -> Any:
        results = plain(x, w8, r8, b, lengths, h, c, None, *scale_w, *scale_r)
        return results[0] if single else results

    def call(*given: Any) -> Any:
        x, *rest = given
        made = layer.launch(x, w, r, *rest)
        if made is None:
            return otherwise(*given)
        result = made.result[0] if single else made.result
        return made._replace(result=result, otherwise=otherwise)

    inputs = (node.inputs[0], *node.inputs[3:7])
    return Fused((node,), inputs, tuple(node.outputs), Capturable(call))


def real(site: Site, places: tuple[int, ...]) -> NDArray:
    """Returns weights as float32, (directions, gates, inputs); their bytes lie the other way."""
    given = [site.constant(place) for place in places]
    weights, scale, zero = (value.astype(F32) for value in given if value is not None)
    shape = (weights.shape[0], 1, -1)
    turned = ((weights - zero.reshape(shape)) * scale.reshape(shape)).swapaxes(1, 2)
    return np.ascontiguousarray(turned)
