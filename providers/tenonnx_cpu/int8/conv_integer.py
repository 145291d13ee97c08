"""ConvInteger, and what makes its sums real numbers again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tenonnx_cpu.conv.attributes import Attributes
from tenonnx_cpu.conv.tail import per_channel
from tenonnx_cpu.fuse import Fused, Scope, fusion
from tenonnx_cpu.int8.codes import scaled_sums
from tenonnx_cpu.int8.conv import limits_of
from tenonnx_cpu.int8.conv_weights import ByteWeights
from tenonnx_cpu.int8.product import I32, Finish
from tenonnx_cpu.products.product import F32
from tenonnx_cpu.specialise import Call, NDArray, Site, specialise

if TYPE_CHECKING:
    import onnx_ir as ir


def _origin(x: NDArray, zero: NDArray | None) -> int | None:
    """Returns an image's zero point, once its bytes are unsigned; ``None`` if there are several."""
    flip = 128 if x.dtype == np.int8 else 0
    if zero is None:
        return flip
    return flip + int(zero.reshape(())) if zero.size == 1 else None


@specialise("ConvInteger")
def conv_integer(site: Site, plain: Call) -> Call | None:
    """Sums in int32."""
    weights = ByteWeights.of(Attributes.of(site), site, 1, 3, site.threads)
    if weights is None:
        return None
    factor, summand = per_channel(weights.rows)

    def call(x: NDArray, w: NDArray, x_zero: NDArray | None = None, *rest: Any) -> Any:
        origin, y = _origin(x, x_zero), None
        if origin is not None:
            finish = Finish(I32, factor, summand, weights.extra(origin))
            y = weights.convolve(x, origin, finish)
        return plain(x, w, x_zero, *rest) if y is None else y

    return call


@fusion("ConvInteger", turn=-1)
def fuse_scaled(node: ir.Node, scope: Scope) -> Fused | None:
    """ConvInteger, a Cast to float32, a Mul with the scales, an Add of a bias, a Relu or Clip."""
    found = scaled_sums(node, scope)
    weights = ByteWeights.of(Attributes.of(scope.site(node)), scope.site(node), 1, 3, scope.threads)
    if found is None or weights is None:
        return None
    nodes, scale = found
    summand, limits = per_channel(weights.rows)[1], (-np.inf, np.inf)
    scaled = nodes[-1]
    added = scope.reader(scaled.outputs[0])
    if added is not None and added.op_type == "Add" and not added.domain:
        other = 1 if added.inputs[0] is scaled.outputs[0] else 0
        bias = _by_row(scope.site(added).constant(other), weights)
        if bias is not None:
            nodes, summand = [*nodes, added], bias
    last = scope.reader(nodes[-1].outputs[0])
    if last is not None and (clipped := limits_of(last, scope)) is not None:
        nodes, limits = [*nodes, last], clipped
    image, zero = node.inputs[0], (*node.inputs, None, None)[2]
    inputs = tuple(dict.fromkeys(value for value in (image, zero, scale) if value is not None))
    plain = scope.fallback(nodes, inputs, nodes[-1].outputs[0])
    places = [None if value is None else inputs.index(value) for value in (image, zero, scale)]

    def call(*given: NDArray) -> Any:
        x, x_zero, unit = (None if place is None else given[place] for place in places)
        assert x is not None, "the image is one of the inputs"
        origin, factor, y = _origin(x, x_zero), _by_row(unit, weights), None
        if origin is not None and factor is not None:
            finish = Finish(F32, factor, summand, weights.extra(origin), *limits)
            y = weights.convolve(x, origin, finish)
        return plain(*given) if y is None else y

    return Fused(tuple(nodes), inputs, (nodes[-1].outputs[0],), call)


def _by_row(value: NDArray | None, weights: ByteWeights) -> NDArray | None:
    """Returns a number for every row that a tensor has; ``None`` if it has others."""
    if value is None or value.dtype != F32 or value.ndim > weights.array.ndim:
        return None
    if value.size == 1:
        return np.full(weights.rows, value.reshape(()), np.float32)
    axis = 1 - weights.array.ndim
    fits = value.ndim >= -axis and value.shape[axis] == value.size == weights.rows
    return np.ascontiguousarray(value.reshape(-1)) if fits else None
