"""Values between DequantizeLinear and QuantizeLinear, as fusions find them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tenonnx.by_name import cacheable
from tenonnx.planning.anchors import BROADCASTING_OPSET, Part, Walk, clip_bounds, other
from tenonnx_cpu.fuse import Scope
from tenonnx_cpu.kernel_selection import NDArray, Site

if TYPE_CHECKING:
    import onnx_ir as ir

# Types by their numbers in `onnx.TensorProto`.
FLOAT, INT8 = 1, 3

BYTE_DTYPES = (np.dtype(np.uint8), np.dtype(np.int8))


# Limits of what is not limited.
ALL = (-np.inf, np.inf)

# The least scale to which kernels round, and the greatest of all: the quotient of a product of two
# scales and one to which is rounded is a float32 then.
MIN_STEP, MAX_STEP = np.float32(1e-18), np.float32(1e10)


@cacheable
@dataclass(frozen=True)
class QuantizedType:
    """The numbers that bytes stand for: ``(byte - zero) * scale``.

    Attributes:
        scale: One number, or one per channel.
        zero: The zero point, one number or one per channel.
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

    def between(self, limits: tuple[float, float]) -> tuple[float, float]:
        """Return the least and the greatest byte that stand for numbers between two, likewise.

        All bytes do for numbers without limits, whatever the scale is; of a negative one, the least
        byte stands for the greatest number.
        """
        if limits == ALL:
            return float(self.bounds[0]), float(self.bounds[1])
        with np.errstate(all="ignore"):
            steps = np.rint(np.array(limits, np.float32) / np.float32(self.step))
        low, high = np.sort(np.clip(steps, *self.bounds))
        return float(low), float(high)

    @property
    def flip(self) -> int:
        """The bits that are inverted to make signed bytes unsigned, 128 more."""
        return 128 if self.dtype == np.int8 else 0

    def same(self, other: QuantizedType) -> bool:
        """Return whether bytes of both stand for the same numbers."""
        single = self.is_single and other.is_single and self.dtype == other.dtype
        return single and self.step == other.step and self.origin == other.origin


def quantized_type_at(site: Site, scale: int) -> QuantizedType | None:
    """Return the code of bytes whose scale and zero point are two inputs in a row, if constant."""
    step, zero = site.scalar(scale), site.scalar(scale + 1)
    if step is None or zero is None or step.dtype != np.float32 or zero.dtype not in BYTE_DTYPES:
        return None
    if not MIN_STEP <= abs(step) <= MAX_STEP:
        return None
    return QuantizedType(step, zero, zero.dtype)


def quantized_type_of(
    node: ir.Node, scope: Scope, dtype: np.dtype[Any] | None = None
) -> QuantizedType | None:
    """Return the code of a DequantizeLinear or QuantizeLinear whose parameters are constants."""
    site = scope.site(node)
    if site.attribute("block_size", 0) or site.attribute("output_dtype", 0) not in (0, 1, 2, 3):
        return None
    scale, zero = site.constant(1), site.constant(2)
    if scale is None or scale.dtype != np.float32 or not (abs(scale) <= MAX_STEP).all():
        return None
    if node.op_type == "QuantizeLinear" and not (scale >= MIN_STEP).all():
        return None  # of a negative one, what rounds to the least byte is the greatest number
    if zero is None:
        dtype = dtype or _told(node, scope)
        if dtype is None or (len(node.inputs) > 2 and node.inputs[2] is not None):
            return None
        zero = np.zeros(1, dtype)
    return QuantizedType(scale, zero, zero.dtype)


def _told(node: ir.Node, scope: Scope) -> np.dtype[Any] | None:
    """Return the type of a node's codes if something else than its zero point tells it."""
    site = scope.site(node)
    if node.op_type == "QuantizeLinear":
        return BYTE_DTYPES[int(site.attribute("output_dtype", 0) == INT8)]
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
    """Return the DequantizeLinear that makes a value, if it can be left out."""
    return scope.maker(value, "DequantizeLinear")


def _limits(node: ir.Node, _: Walk[Scope]) -> tuple[float, float] | str:
    """Read the least and the greatest result of a Relu or a Clip between constants."""
    found = (0.0, np.inf) if node.op_type == "Relu" else clip_bounds(node)
    return "its bounds are not known before" if found is None else found


def _quantizer(node: ir.Node, walk: Walk[Scope]) -> QuantizedType | str:
    code = quantized_type_of(node, walk.scope) if node.inputs[0] is walk.value else None
    if code is None or not code.is_single or code.dtype not in BYTE_DTYPES:
        return "it does not round to bytes by one constant scale"
    return code


LIMITS = Part("limits", ("Clip", "Relu"), _limits)
ROUNDED = Part("quantizer", ("QuantizeLinear",), _quantizer)
# Parts behind operators that kernels compute from bytes to bytes.
REQUANTIZED = (LIMITS, Part("quantizer", ("QuantizeLinear",), _quantizer, needed=True))


def _cast(node: ir.Node, walk: Walk[Scope]) -> bool | str:
    return walk.scope.site(node).attribute("to", 0) == FLOAT or "it is to another type"


# Parts that turn int32 sums into floats: a Cast to float32, and a Mul with their scale.
SCALED_PARTS = (
    Part("cast", ("Cast",), _cast, needed=True),
    Part("scale", ("Mul",), other, since=BROADCASTING_OPSET, needed=True),
)
