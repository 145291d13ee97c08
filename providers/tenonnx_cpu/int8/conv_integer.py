"""ConvInteger, and what makes its sums real numbers again."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tenonnx.by_name import cacheable
from tenonnx.planning.anchors import BROADCASTING_OPSET, Part, Walk
from tenonnx_cpu.buffers import frozen
from tenonnx_cpu.capture.capturable import Capturable
from tenonnx_cpu.conv.attributes import Attributes
from tenonnx_cpu.fuse import QUANTIZED, Fused, Scope, fusion
from tenonnx_cpu.int8.conv_weights import ByteWeights
from tenonnx_cpu.int8.product import NO_NUMBERS, PLAIN_SUMS, ByteFinish
from tenonnx_cpu.int8.quantized_values import ALL, LIMITS, SCALED_PARTS
from tenonnx_cpu.kernel_selection import Call, NDArray, Site, specialize
from tenonnx_cpu.matmul.product import F32

if TYPE_CHECKING:
    import onnx_ir as ir

NO_ORIGIN = {np.dtype(kind): frozen(np.zeros(1, kind)) for kind in (np.uint8, np.int8)}


def _origin(x: NDArray, zero: NDArray | None) -> NDArray | None:
    """Return an image's only zero point; ``None`` if there are several."""
    if zero is None:
        return NO_ORIGIN.get(x.dtype)
    return zero.reshape(1) if zero.size == 1 else None


@specialize("ConvInteger")
def conv_integer(site: Site, plain: Call) -> Call | None:
    """Sum in int32."""
    weights = ByteWeights.of(Attributes.of(site), site, 1, 3, site.threads)
    return None if weights is None else Capturable(functools.partial(_summed, weights, plain))


@cacheable
def _summed(
    weights: ByteWeights, plain: Call, x: NDArray, w: NDArray, x_zero: NDArray | None = None,
    *rest: Any,
) -> Any:  # fmt: skip
    origin = _origin(x, x_zero)
    made = None if origin is None else weights.launch(x, origin, PLAIN_SUMS)
    return plain(x, w, x_zero, *rest) if made is None else made


def _row(node: ir.Node, walk: Walk[Scope]) -> NDArray | str:
    row = _by_row(walk.scope.site(node).constant(walk.beside(node)), walk.about)
    return "it adds no constant float32 for every channel" if row is None else row


BIAS_ROW = Part("bias", ("Add",), _row, since=BROADCASTING_OPSET)


@fusion("ConvInteger", priority=QUANTIZED, takes=(*SCALED_PARTS, BIAS_ROW, LIMITS))
def fuse_scaled(node: ir.Node, scope: Scope) -> Fused | None:
    """ConvInteger, a Cast to float32, a Mul with the scales, an Add of a bias, a Relu or Clip."""
    weights = ByteWeights.of(Attributes.of(scope.site(node)), scope.site(node), 1, 3, scope.threads)
    if weights is None:
        return None
    walk = scope.follow(node, weights)
    if not walk.is_whole:
        return None
    limits, scale = walk.found.get(LIMITS.name, ALL), walk.found["scale"]
    bias, summand = walk.found.get(BIAS_ROW.name), NO_NUMBERS
    if bias is not None:
        summand = np.ascontiguousarray(np.broadcast_to(bias, weights.rows))
    image, zero = node.inputs[0], (*node.inputs, None, None)[2]
    inputs = tuple(dict.fromkeys(value for value in (image, zero, scale) if value is not None))
    plain = scope.fallback(walk.nodes, inputs, walk.value)
    places = [None if value is None else inputs.index(value) for value in (image, zero, scale)]
    call = ScaledConv(weights, tuple(places), summand, limits, plain)
    return Fused(walk.nodes, inputs, (walk.value,), Capturable(call))


@cacheable
@dataclass(frozen=True, eq=False)
class ScaledConv:
    """Convolves bytes, and multiplies sums by scales.

    Attributes:
        weights: The weights.
        places: Which inputs are the image, its zero point and the scales.
        summand: What is added, one number or one for every channel.
        limits: The least and the greatest result.
        plain: Computes the same from the same inputs.
    """

    weights: ByteWeights
    places: tuple[int | None, ...]
    summand: NDArray
    limits: tuple[float, float]
    plain: Call

    def __call__(self, *given: NDArray) -> Any:
        """Return a launch, or the result."""
        x, x_zero, unit = (None if place is None else given[place] for place in self.places)
        assert x is not None, "the image is one of the inputs"
        origin, factor, made = _origin(x, x_zero), _by_row(unit, self.weights), None
        if origin is not None and factor is not None:
            low, high = self.limits
            finish = ByteFinish(F32, factor, self.summand, low=low, high=high)
            made = self.weights.launch(x, origin, finish)
        return self.plain(*given) if made is None else made


def _by_row(value: NDArray | None, weights: ByteWeights) -> NDArray | None:
    """Return the number that a tensor has, or one for every row; ``None`` if it has others."""
    rank = len(weights.shape)
    if value is None or value.dtype != F32 or value.ndim > rank:
        return None
    if value.size == 1:
        return value.reshape(1)
    axis = 1 - rank
    fits = value.ndim >= -axis and value.shape[axis] == value.size == weights.rows
    return np.ascontiguousarray(value.reshape(-1)) if fits else None
