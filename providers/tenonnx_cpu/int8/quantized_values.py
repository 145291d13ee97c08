"""Values between DequantizeLinear and QuantizeLinear, as fusions find them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from tenonnx.planning.fusion import beside
from tenonnx.records import record
from tenonnx_cpu.fuse import Scope
from tenonnx_cpu.kernel_selection import NDArray, Site

if TYPE_CHECKING:
    import onnx_ir as ir

FLOAT, INT8 = 1, 3
"""Types by their numbers in ``onnx.TensorProto``."""

BYTES = (np.dtype(np.uint8), np.dtype(np.int8))


@record
class QuantizedType:
    """How bytes stand for numbers: ``(byte - zero) * scale``.

    Attributes:
        scale: One number, or one per channel.
        zero: Likewise.
        dtype: uint8 or int8; int32 for biases.
    """

    scale: NDArray
    zero: NDArray
    dtype: np.dtype[Any]

    @property
    def is_single(self) -> bool:
        """Whether all bytes stand for numbers in the same way."""
        return self.scale.size == 1 and self.zero.size == 1

    @property
    def step(self) -> float:
        """The scale, if there is one."""
        return float(self.scale.reshape(-1)[0])

    @property
    def origin(self) -> int:
        """The zero point, if there is one."""
        return int(self.zero.reshape(-1)[0])

    @property
    def bounds(self) -> tuple[int, int]:
        """The least and the greatest byte, from the zero point on."""
        limits = np.iinfo(self.dtype)
        return int(limits.min) - self.origin, int(limits.max) - self.origin

    @property
    def flip(self) -> int:
        """Which bits are inverted to make signed bytes unsigned, 128 more."""
        return 128 if self.dtype == np.int8 else 0

    def same(self, other: QuantizedType) -> bool:
        """Says whether bytes of both stand for the same numbers."""
        single = self.is_single and other.is_single and self.dtype == other.dtype
        return single and self.step == other.step and self.origin == other.origin


def quantized_type_at(site: Site, scale: int) -> QuantizedType | None:
    """Returns the code of bytes whose scale and zero point are two inputs in a row, if constant."""
    step, zero = site.scalar(scale), site.scalar(scale + 1)
    if step is None or zero is None or step.dtype != np.float32 or zero.dtype not in BYTES:
        return None
    return QuantizedType(step, zero, zero.dtype)


def quantized_type_of(
    node: ir.Node, scope: Scope, dtype: np.dtype[Any] | None = None
) -> QuantizedType | None:
    """Returns the code of a DequantizeLinear or QuantizeLinear whose parameters are constants."""
    site = scope.site(node)
    if site.attribute("block_size", 0) or site.attribute("output_dtype", 0) not in (0, 1, 2, 3):
        return None
    scale, zero = site.constant(1), site.constant(2)
    if scale is None or scale.dtype != np.float32:
        return None
    if zero is None:
        dtype = dtype or _told(node, scope)
        if dtype is None or (len(node.inputs) > 2 and node.inputs[2] is not None):
            return None
        zero = np.zeros(1, dtype)
    return QuantizedType(scale, zero, zero.dtype)


def _told(node: ir.Node, scope: Scope) -> np.dtype[Any] | None:
    """Returns the type of a node's codes if something else than its zero point tells it."""
    site = scope.site(node)
    if node.op_type == "QuantizeLinear":
        return BYTES[int(site.attribute("output_dtype", 0) == INT8)]
    codes = node.inputs[0]
    if codes is None:
        return None
    if codes.dtype is not None:
        return codes.dtype.numpy()
    maker = codes.producer()
    if maker is None or maker.op_type != "QuantizeLinear" or maker.domain:
        return None
    zero = scope.site(maker).constant(2)
    if zero is None and len(maker.inputs) > 2 and maker.inputs[2] is not None:
        return None
    return _told(maker, scope) if zero is None else zero.dtype


def dequantized(value: ir.Value | None, scope: Scope) -> ir.Node | None:
    """Returns the DequantizeLinear that makes a value, if it can be left out."""
    node = None if value is None else value.producer()
    if node is None or node.op_type != "DequantizeLinear" or node.domain or not scope.has(node):
        return None
    return node


def quantizer(value: ir.Value, scope: Scope) -> ir.Node | None:
    """Returns the QuantizeLinear that alone reads a value."""
    node = scope.follower(value, "QuantizeLinear")
    return node if node is not None and node.inputs[0] is value else None


def unread(
    sources: Iterable[ir.Node], nodes: Iterable[ir.Node], scope: Scope
) -> tuple[ir.Node, ...]:
    """Returns those sources that nobody reads any more once these nodes are fused."""
    fused = scope.taken.union(nodes)
    return tuple(
        source
        for source in dict.fromkeys(sources)
        if scope.has(source)
        and not scope.escapes(source.outputs[0])
        and all(use.node in fused for use in source.outputs[0].uses())
    )


def scaled_sums(node: ir.Node, scope: Scope) -> tuple[list[ir.Node], ir.Value] | None:
    """Returns a node of int32 sums, the Cast of them to float32, the Mul of that, and its scale."""
    cast = scope.follower(node.outputs[0], "Cast")
    if cast is None or scope.site(cast).attribute("to", 0) != FLOAT:
        return None
    scaled = scope.follower(cast.outputs[0], "Mul")
    scale = None if scaled is None else scaled.inputs[beside(scaled, cast.outputs[0])]
    return None if scaled is None or scale is None else ([node, cast, scaled], scale)
