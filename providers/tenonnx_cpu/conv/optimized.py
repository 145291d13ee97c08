"""Convolutions and pooling as onnxruntime leaves them in models that it has optimized."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tenonnx.by_name import cacheable
from tenonnx.provider import HOST
from tenonnx_cpu.activation import NO_ACTIVATION, named
from tenonnx_cpu.buffers import F32
from tenonnx_cpu.capture.capturable import Capturable
from tenonnx_cpu.conv.attributes import Attributes
from tenonnx_cpu.conv.channels_last import channels_first, channels_last, taking_first, taking_last
from tenonnx_cpu.conv.conv import ConvCall
from tenonnx_cpu.conv.epilogue import Tail
from tenonnx_cpu.conv.pooling import pool
from tenonnx_cpu.conv.select import request
from tenonnx_cpu.fuse import Fused, Scope, fusion
from tenonnx_cpu.int8.pooling import max_pool_of_bytes
from tenonnx_cpu.int8.quantized_values import BYTE_DTYPES
from tenonnx_cpu.kernel_selection import Call, NDArray, Site, specialize

if TYPE_CHECKING:
    import onnx_ir as ir


@fusion("FusedConv", domain="com.microsoft")
def fuse_fused_conv(node: ir.Node, scope: Scope) -> Fused | None:
    """Conv, a sum and an activation as one node."""
    tail = tail_of(node, scope)
    if tail is None:
        return None
    plain = scope.fallback((node,), inputs_of(node), node.outputs[0])
    handle = scope.site(node).weight(1) if scope.packs else None
    call = ConvCall(Attributes.of(scope.site(node)), tail, scope.threads, plain, handle)
    return Fused((node,), inputs_of(node), (node.outputs[0],), Capturable(call.launch))


@fusion("NhwcConv", "NhwcFusedConv", domain="com.microsoft")
def fuse_channels_last(node: ir.Node, scope: Scope) -> Fused | None:
    """The same for images and weights that have their channels last."""
    tail = tail_of(node, scope)
    if tail is None:
        return None
    inputs, site = inputs_of(node), scope.site(node)
    plain = taking_first(scope.fallback((node,), inputs, node.outputs[0]), 0, 1, 3)
    given = site.weight(1) if scope.packs else None
    turned, known = None, None
    if given is not None:
        turned = given.derive(
            "channels-first:1", lambda: np.ascontiguousarray(channels_first(given.on(HOST)))
        )
        known = turned.on(HOST)
    conv = ConvCall(Attributes.of(site), tail, scope.threads, plain, turned, last=True)

    return Fused((node,), inputs, (node.outputs[0],), NhwcCall(conv, known))


@cacheable
@dataclass(frozen=True, eq=False)
class NhwcCall:
    """Convolves images that have their channels last.

    Attributes:
        conv: The convolution of images that have them first.
        weights: The weights likewise, if they are known.
    """

    conv: ConvCall
    weights: NDArray | None

    def __call__(self, x: NDArray, w: NDArray, b: NDArray | None, z: NDArray | None) -> Any:
        """Return the result, which has its channels last, too."""
        residual = None if z is None else channels_first(z)
        weights = channels_first(w) if self.weights is None else self.weights
        return channels_last(self.conv(channels_first(x), weights, b, residual))


def inputs_of(node: ir.Node) -> tuple[ir.Value | None, ...]:
    """Return image, weights, bias and what is added; ``None`` for what there is not."""
    return (*node.inputs, None, None)[:4]


def tail_of(node: ir.Node, scope: Scope) -> Tail | None:
    """Return what follows the convolution in a node; ``None`` if kernels do not do that."""
    site = scope.site(node)
    weight = site.constant(1)
    name, numbers = site.attribute("activation", ""), site.attribute("activation_params", ())
    made = named(name, numbers) if name else NO_ACTIVATION
    if made is None or (name == "Clip" and len(numbers) != 2):
        return None
    if weight is not None and weight.dtype != F32:
        return None
    request(weight)
    return Tail(activation=made)


@specialize("NhwcMaxPool", domain="com.microsoft")
def max_pool(site: Site, plain: Call) -> Call | None:
    """The maximum of floats or bytes of images that have their channels last."""
    first = taking_first(plain, 0)
    of_bytes = max_pool_of_bytes(site, first)
    pooled = pool(site, functools.partial(_as_tuple, first))
    if pooled is None:
        return None
    return taking_last(functools.partial(_pooled, of_bytes, pooled), 0)


def _as_tuple(call: Call, x: NDArray) -> tuple[Any]:
    return (call(x),)


def _pooled(of_bytes: Call, of_floats: Call, x: NDArray) -> Any:
    return of_bytes(x) if x.dtype in BYTE_DTYPES else of_floats(np.ascontiguousarray(x))[0]
