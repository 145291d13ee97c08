"""Convolutions of bytes: QLinearConv, and Conv between DequantizeLinear and QuantizeLinear."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tenonnx_cpu.buffers import empty
from tenonnx_cpu.byte_codes import BYTES, Code, code_of, dequantized, quantizer, unread
from tenonnx_cpu.conv import Attributes
from tenonnx_cpu.conv_bytes_layout import bytes_layout
from tenonnx_cpu.conv_layout import Layout
from tenonnx_cpu.fuse import Fused, Scope, fusion
from tenonnx_cpu.jit.runtime import JitKernel
from tenonnx_cpu.product import floats
from tenonnx_cpu.specialise import Call, NDArray, Site, specialise

if TYPE_CHECKING:
    import onnx_ir as ir

CONV = JitKernel("conv_int8", "conv_int8")


@dataclass(frozen=True)
class ByteConv:
    """A convolution of bytes, all constants known.

    Attributes:
        attributes: The convolution's.
        weights: int8, where they are mapped.
        x: What the image's bytes stand for.
        w: What the weights stand for; zero points are 0.
        y: What the result's bytes stand for.
        bias: One float per channel, or one int32 in units of the sums', or ``None``.
        least: The least result, as a number.
        threads: How many to use at most.
        plain: Computes the same from the image's bytes.
    """

    attributes: Attributes
    weights: NDArray
    x: Code
    w: Code
    y: Code
    bias: NDArray | None
    least: float
    threads: int
    plain: Call

    @functools.cached_property
    def factors(self) -> tuple[NDArray, NDArray, NDArray]:
        """What is added to sums, what they are multiplied by, what is added then; per channel."""
        rows = self.weights.shape[0]
        origin = self.x.origin + self.x.flip
        sums = self.weights.reshape(rows, -1).sum(axis=1, dtype=np.int64)
        unit = self.x.scale.reshape(-1)[:1].astype(np.float64) * np.broadcast_to(
            self.w.scale.reshape(-1), rows
        )
        extra, summand = -origin * sums, np.zeros(rows)
        if self.bias is not None and self.bias.dtype == np.int32:
            extra = extra + self.bias.reshape(-1)
        elif self.bias is not None:
            summand = self.bias.reshape(-1) / self.y.step
        return (
            extra.astype(np.int32),
            (unit / self.y.step).astype(np.float32),
            summand.astype(np.float32),
        )

    @functools.cached_property
    def limits(self) -> tuple[float, float]:
        """The least and the greatest result from the zero point on."""
        low, high = self.y.bounds
        return max(low, round(self.least / self.y.step)) if self.least > -np.inf else low, high

    def __call__(self, x: NDArray) -> Any:
        """Returns the bytes of the result."""
        run = CONV.run
        flags = x.flags
        cut = None if run is None else self.layout(x.shape)
        if cut is None or run is None or not flags.c_contiguous or x.dtype != self.x.dtype:
            return self.plain(x)
        extra, factor, summand = self.factors
        low, high = self.limits
        shape = cut.output if x.ndim == 4 else (*cut.output[:2], cut.output[3])
        y = empty(shape, self.y.dtype)
        flip = self.x.flip
        run(
            x.view(np.uint8).reshape(-1), self.weights.reshape(-1), y.view(np.uint8).reshape(-1),
            extra, factor, summand, low, high, self.y.origin, self.x.origin + flip, flip,
            cut.numbers, cut.offsets, cut.planes, floats(cut.floats * cut.threads), cut.threads,
        )  # fmt: skip
        return y

    def layout(self, shape: tuple[int, ...]) -> Layout | None:
        """Returns how to cut the work for an image of a shape; ``None`` if it does not fit."""
        known: dict[tuple[int, ...], Layout | None] = self.__dict__.setdefault("_layouts", {})
        if shape not in known:
            windows = self.attributes.windows(shape, self.weights.shape)
            known[shape] = None
            if windows is not None:
                known[shape] = bytes_layout(
                    (*shape[:2], *windows.size),
                    self.weights.shape[0],
                    self.attributes.group,
                    windows,
                    self.threads,
                )
        return known[shape]


def takes(weights: NDArray | None, x: Code | None, w: Code | None, y: Code | None) -> bool:
    """Says whether the kernel takes weights and codes like these."""
    if weights is None or x is None or w is None or y is None:
        return False
    return (
        weights.dtype == np.int8
        and weights.flags.c_contiguous
        and weights.size > 0
        and x.is_single
        and y.is_single
        and x.dtype in BYTES
        and y.dtype in BYTES
        and w.scale.size in (1, weights.shape[0])
        and not w.zero.any()
    )


@fusion("Conv", turn=-1)
def fuse_conv(node: ir.Node, scope: Scope) -> Fused | None:
    """A convolution of dequantised bytes, a Relu perhaps, and what quantises the result."""
    image, kernel = (dequantized(value, scope) for value in node.inputs[:2])
    if image is None or kernel is None:
        return None
    nodes, least = [node], -np.inf
    following = scope.reader(node.outputs[0])
    if following is not None and following.op_type == "Relu" and not following.domain:
        nodes.append(following)
        least = 0.0
    last = quantizer(nodes[-1].outputs[0], scope)
    if last is None:
        return None
    weights = scope.site(kernel).constant(0)
    codes = [code_of(step, scope) for step in (image, kernel, last)]
    x, w, y = codes
    if weights is None or x is None or w is None or y is None or not takes(weights, *codes):
        return None
    if w.scale.size > 1 and scope.site(kernel).attribute("axis", 1) != 0:
        return None
    found, bias = _bias(node, x, w, scope)
    if not found:
        return None
    nodes.append(last)
    sources = [image, kernel, *_sources(node, scope)]
    inputs = (image.inputs[0],)
    every = tuple(dict.fromkeys(source for source in (*sources, *nodes)))
    output = last.outputs[0]
    plain = scope.fallback(every, inputs, output)
    CONV.request()
    call = ByteConv(
        Attributes.of(scope.site(node)), weights, x, w, y, bias, least, scope.threads, plain
    )
    return Fused((*unread(sources, nodes, scope), *nodes), inputs, (output,), call)


def _sources(node: ir.Node, scope: Scope) -> list[ir.Node]:
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    source = dequantized(bias, scope)
    return [] if source is None else [source]


def _bias(node: ir.Node, x: Code, w: Code, scope: Scope) -> tuple[bool, NDArray | None]:
    """Returns whether the bias is known, and which it is."""
    if len(node.inputs) < 3 or node.inputs[2] is None:
        return True, None
    given = scope.site(node).constant(2)
    if given is not None:
        return given.dtype == np.float32, given
    source = dequantized(node.inputs[2], scope)
    whole = None if source is None else scope.site(source).constant(0)
    if source is None or whole is None or whole.dtype != np.int32:
        return False, None
    code = code_of(source, scope, np.dtype(np.int32))
    if code is None or code.zero.any():
        return False, None
    unit = x.scale.reshape(-1)[:1] * w.scale.reshape(-1)
    if np.allclose(code.scale.reshape(-1), unit, rtol=1e-6, atol=0):
        return True, whole
    return True, whole * code.scale.astype(np.float64)


@specialise("QLinearConv")
def qlinear_conv(site: Site, plain: Call) -> Call | None:
    """QLinearConv with constants for everything but the image."""
    given = [None if position == 0 else site.constant(position) for position in range(9)]
    if any(array is None for array in given[1:8]) or (
        given[8] is None and len(site.node.inputs) > 8 and site.node.inputs[8] is not None
    ):
        return None
    _, x_scale, x_zero, weights, w_scale, w_zero, y_scale, y_zero, bias = given
    x, w, y = (
        Code(scale, zero, zero.dtype)
        for scale, zero in ((x_scale, x_zero), (w_scale, w_zero), (y_scale, y_zero))
        if scale is not None and zero is not None
    )
    if weights is None or not takes(weights, x, w, y):
        return None
    CONV.request()
    rest = tuple(given[1:])

    def whole(image: NDArray) -> Any:
        return plain(image, *rest)

    conv = ByteConv(Attributes.of(site), weights, x, w, y, bias, -np.inf, site.threads, whole)
    return lambda image, *_: conv(image)
