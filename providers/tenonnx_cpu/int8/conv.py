"""Convolutions of bytes: QLinearConv, and Conv between DequantizeLinear and QuantizeLinear."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tenonnx.by_name import cacheable
from tenonnx_cpu.buffers import frozen
from tenonnx_cpu.capture.capturable import Capturable
from tenonnx_cpu.capture.launch import done
from tenonnx_cpu.conv.attributes import Attributes
from tenonnx_cpu.conv.channels_last import taking_first, taking_last
from tenonnx_cpu.fuse import QUANTIZED, Fused, Scope, fusion
from tenonnx_cpu.int8.conv_weights import ByteWeights
from tenonnx_cpu.int8.product import NO_WORDS, ByteFinish
from tenonnx_cpu.int8.quantized_values import (
    ALL,
    BYTE_DTYPES,
    LIMITS,
    REQUANTIZED,
    QuantizedType,
    dequantized,
    quantized_type_of,
)
from tenonnx_cpu.kernel_selection import Call, NDArray, Site, specialize

if TYPE_CHECKING:
    import onnx_ir as ir


@cacheable
@dataclass(frozen=True)
class ByteConv:
    """A convolution of bytes that gives bytes, all constants known.

    Attributes:
        weights: The weights of the convolution.
        x: What the image's bytes stand for.
        w: What the weights stand for.
        y: What the result's bytes stand for.
        bias: One float per channel, or one int32 in units of the sums', or ``None``.
        limits: The least and the greatest result, as numbers.
        plain: Computes the same from the image's bytes.
    """

    weights: ByteWeights
    x: QuantizedType
    w: QuantizedType
    y: QuantizedType
    bias: NDArray | None
    limits: tuple[float, float]
    plain: Call

    @functools.cached_property
    def finish(self) -> ByteFinish:
        """The conversion of sums."""
        rows = self.weights.rows
        # In float32, in this order, as onnxruntime: ties are those that it has.
        unit = self.x.scale.reshape(-1)[:1] * np.broadcast_to(self.w.scale.reshape(-1), rows)
        whole, summand = NO_WORDS, np.zeros(rows)
        if self.bias is not None and self.bias.dtype == np.int32:
            whole = self.bias.reshape(-1)
        elif self.bias is not None:
            summand = self.bias.reshape(-1) / self.y.step
        low, high = self.y.between(self.limits)
        return ByteFinish(
            self.y.dtype,
            frozen((unit / self.y.scale.reshape(-1)[:1]).astype(np.float32)),
            frozen(summand.astype(np.float32)),
            whole,
            low,
            high,
            self.y.origin,
        )

    def __call__(self, x: NDArray) -> Any:
        """Return the bytes of the result."""
        return done(self.launch(x), (x,))

    def launch(self, x: NDArray) -> Any:
        """Return a launch that makes the bytes of the result, or those."""
        made = None
        if x.dtype == self.x.dtype:
            made = self.weights.launch(x, self.x.zero.reshape(1), self.finish)
        return self.plain(x) if made is None else made


def takes(
    weights: ByteWeights | None,
    x: QuantizedType | None,
    w: QuantizedType | None,
    y: QuantizedType | None,
    bias: NDArray | None,
) -> bool:
    """Return whether codes and a bias are of the kind that kernels take."""
    if weights is None or x is None or w is None or y is None:
        return False
    return (
        x.is_single
        and y.is_single
        and x.dtype in BYTE_DTYPES
        and y.dtype in BYTE_DTYPES
        and w.scale.size in (1, weights.rows)
        and (bias is None or bias.shape == (weights.rows,))
    )


@fusion("Conv", priority=QUANTIZED, takes=REQUANTIZED)
def fuse_conv(node: ir.Node, scope: Scope) -> Fused | None:
    """A convolution of dequantized bytes, a Relu or Clip perhaps, and what quantizes the result."""
    image, kernel = (dequantized(value, scope) for value in node.inputs[:2])
    if image is None or kernel is None:
        return None
    walk = scope.follow(node)
    if not walk.is_whole:
        return None
    x, w, y = (
        quantized_type_of(image, scope),
        quantized_type_of(kernel, scope),
        walk.found["quantizer"],
    )
    attributes = Attributes.of(scope.site(node))
    weights = ByteWeights.of(attributes, scope.site(kernel), 0, 2, scope.threads)
    if weights is None or x is None or w is None:
        return None
    if w.scale.size > 1 and scope.site(kernel).attribute("axis", 1) != 0:
        return None
    known, bias = _bias(node, x, w, scope)
    if not known or not takes(weights, x, w, y, bias):
        return None
    made = (dequantized(value, scope) for value in node.inputs)
    sources = [source for source in made if source is not None]
    limits = walk.found.get(LIMITS.name, ALL)

    def make(plain: Call) -> Call:
        return Capturable(ByteConv(weights, x, w, y, bias, limits, plain).launch)

    return scope.fused(walk.nodes, (image.inputs[0],), make, sources)


def _bias(
    node: ir.Node, x: QuantizedType, w: QuantizedType, scope: Scope
) -> tuple[bool, NDArray | None]:
    """Return whether the bias is known, and which it is."""
    if len(node.inputs) < 3 or node.inputs[2] is None:
        return True, None
    given = scope.site(node).constant(2)
    if given is not None:
        return given.dtype == np.float32, given
    source = dequantized(node.inputs[2], scope)
    whole = None if source is None else scope.site(source).constant(0)
    if source is None or whole is None or whole.dtype != np.int32:
        return False, None
    code = quantized_type_of(source, scope, np.dtype(np.int32))
    if code is None or code.zero.any() or {code.scale.size, w.scale.size} - {1, whole.size}:
        return False, None
    unit = x.scale.reshape(-1)[:1] * w.scale.reshape(-1)
    if np.allclose(code.scale.reshape(-1), unit, rtol=1e-6, atol=0):
        return True, whole
    return True, whole * code.scale.reshape(-1).astype(np.float64)


@specialize("QLinearConv")
@specialize("QLinearConv", domain="com.microsoft")
def qlinear_conv(site: Site, plain: Call) -> Call | None:
    """QLinearConv with constants for everything but the image."""
    given = [None if position == 0 else site.constant(position) for position in range(9)]
    if any(array is None for array in given[1:8]) or (
        given[8] is None and len(site.node.inputs) > 8 and site.node.inputs[8] is not None
    ):
        return None
    _, x_scale, x_zero, _, w_scale, w_zero, y_scale, y_zero, bias = given
    x, w, y = (
        QuantizedType(scale, zero, zero.dtype)
        for scale, zero in ((x_scale, x_zero), (w_scale, w_zero), (y_scale, y_zero))
        if scale is not None and zero is not None
    )
    weights = ByteWeights.of(Attributes.of(site), site, 3, 5, site.threads)
    if weights is None or not takes(weights, x, w, y, bias):
        return None
    if bias is not None and bias.dtype != np.int32:
        return None
    last = bool(site.attribute("channels_last", 0))
    plain = taking_first(plain, 0) if last else plain
    whole = functools.partial(with_constants, plain, tuple(given[1:]))
    conv = ByteConv(weights, x, w, y, bias, ALL, whole)
    if last:
        return functools.partial(of_first, taking_last(conv, 0))
    return Capturable(functools.partial(of_first, conv.launch))


def with_constants(call: Call, constants: tuple[NDArray | None, ...], x: NDArray) -> Any:
    """Return the result of a node's first input and of constants for the others."""
    return call(x, *constants)


def of_first(call: Call, x: NDArray, *_: Any) -> Any:
    """Return the result of a node's first input alone, the others being known."""
    return call(x)
