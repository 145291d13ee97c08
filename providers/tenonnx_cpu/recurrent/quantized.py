"""LSTM with weights of bytes: read so by few steps, made real once for many."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tenonnx.by_name import cacheable
from tenonnx_cpu.buffers import F32
from tenonnx_cpu.capture.capturable import Capturable
from tenonnx_cpu.fuse import Fused, Scope, fusion
from tenonnx_cpu.kernel_selection import Call, NDArray, Site
from tenonnx_cpu.recurrent.few_steps import FewSteps, few_steps
from tenonnx_cpu.recurrent.operator import DIRECTIONS, RecurrentLayer, layer_of

if TYPE_CHECKING:
    import onnx_ir as ir

# The places of the inputs' and the recurrent weights, with their scales and zero points.
WEIGHTS = ((1, 8, 9), (2, 10, 11))


@fusion("DynamicQuantizeLSTM", domain="com.microsoft")
def fuse_quantized(node: ir.Node, scope: Scope) -> Fused | None:
    """Take constant weights, unless copies of weights are not wanted."""
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
    _, reverse = DIRECTIONS[site.attribute("direction", "forward")]
    few = few_steps(constants, site.attribute("hidden_size", None), reverse, site.threads)
    single = len(node.outputs) == 1  # of which a step returns no tuple
    call = QuantizedLayer(layer, w, r, few, constants, single, scope.plain(node).call)
    inputs = (node.inputs[0], *node.inputs[3:7])
    return Fused((node,), inputs, tuple(node.outputs), Capturable(call))


@cacheable
@dataclass(frozen=True, eq=False)
class QuantizedLayer:
    """An LSTM whose weights are bytes.

    Attributes:
        layer: The layer.
        w: Weights of inputs, as float32.
        r: Recurrent weights.
        few: Computes a few steps from the weights as they are stored; ``None`` if nothing does.
        constants: Of both, the operator's weights, scales and zero points.
        single: Whether the first output alone is returned.
        plain: Computes the operator from all of its inputs.
    """

    layer: RecurrentLayer
    w: NDArray
    r: NDArray
    few: FewSteps | None
    constants: list[list[NDArray | None]]
    single: bool
    plain: Call

    def __call__(self, x: Any, b: Any, lengths: Any, h: Any, c: Any) -> Any:
        """Return a launch, or the results."""
        if self.few is not None and lengths is None:
            results = self.few.run(x, b, h, c)
            if results is not None:
                return results[0] if self.single else results
        made = self.layer.launch(x, self.w, self.r, b, lengths, h, c)
        if made is None:
            return self.otherwise(x, b, lengths, h, c)
        result = made.result[0] if self.single else made.result
        return made._replace(result=result, otherwise=self.otherwise)

    def otherwise(self, x: Any, b: Any, lengths: Any, h: Any, c: Any) -> Any:
        """Return the results where the kernel does not take the inputs."""
        (w, *scale_w), (r, *scale_r) = self.constants
        results = self.plain(x, w, r, b, lengths, h, c, None, *scale_w, *scale_r)
        return results[0] if self.single else results


def real(site: Site, places: tuple[int, ...]) -> NDArray:
    """Return weights as float32, (directions, gates, inputs); their bytes lie the other way."""
    given = [site.constant(place) for place in places]
    weights, scale, zero = (value.astype(F32) for value in given if value is not None)
    shape = (weights.shape[0], 1, -1)
    turned = ((weights - zero.reshape(shape)) * scale.reshape(shape)).swapaxes(1, 2)
    return np.ascontiguousarray(turned)
