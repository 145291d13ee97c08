"""Nodes behind a convolution that can be computed while its result is in the cache."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tenonnx.by_name import cacheable
from tenonnx.graph.affine import Affine, affine_of, channels_of
from tenonnx.planning.anchors import BROADCASTING_OPSET, Part, Walk
from tenonnx_cpu.activation import ACTIVATION_PART, NO_ACTIVATION, Activation
from tenonnx_cpu.buffers import frozen
from tenonnx_cpu.elementwise.kernels.opcodes import LEAKY_RELU
from tenonnx_cpu.fuse import Scope
from tenonnx_cpu.kernel_selection import NDArray
from tenonnx_cpu.matmul.product import fits

if TYPE_CHECKING:
    import onnx_ir as ir


@functools.lru_cache(maxsize=256)
def per_channel(count: int) -> tuple[NDArray, NDArray]:
    """Return factors and summands that change nothing."""
    return frozen(np.ones(count, np.float32)), frozen(np.zeros(count, np.float32))


@cacheable
@dataclass(eq=False)
class Tail:
    """The operations on a convolution's result: ``activate(conv * scale + shift + residual)``.

    Attributes:
        scale: A factor per channel, or ``None``.
        shift: What is added per channel beside the convolution's bias times the scale.
        activation: What is done to the sums.
    """

    scale: NDArray | None = None
    shift: NDArray | None = None
    activation: Activation = NO_ACTIVATION
    _shifts: dict[int, tuple[NDArray, NDArray]] = field(default_factory=dict)

    def shifted(self, bias: NDArray | None) -> NDArray:
        """Return what to add per channel, for a convolution with this bias."""
        if self.shift is None:
            assert bias is not None, "without a shift there is nothing to add but the bias"
            return bias
        if bias is None:
            return self.shift
        known = self._shifts.get(id(bias))
        if known is None or known[0] is not bias:
            scaled = bias if self.scale is None else bias * self.scale
            self._shifts.clear()
            known = self._shifts[id(bias)] = bias, frozen((scaled + self.shift).astype(np.float32))
        return known[1]

    def summand(self, rows: int, bias: NDArray | None) -> NDArray | None:
        """Return what is added to each of ``rows`` channels; ``None`` if kernels do not take it.

        Nor do they take factors of another number of channels, which numpy broadcasts or refuses.
        """
        if self.scale is not None and self.scale.shape != (rows,):
            return None
        if bias is None and self.shift is None:
            return per_channel(rows)[1]
        shift = self.shifted(bias)
        return shift if shift.shape == (rows,) and fits(shift) else None

    def follow(self, affine: Affine) -> None:
        """Take one more factor and summand per channel."""
        factor, shift = affine
        if factor is None:
            factor = np.ones_like(shift)
        scale, before = self.scale, self.shift
        self.scale = frozen((factor if scale is None else scale * factor).astype(np.float32))
        after = np.zeros_like(factor) if shift is None else shift
        self.shift = frozen(
            (after if before is None else before * factor + after).astype(np.float32)
        )


class TailNodes(NamedTuple):
    """A convolution and the nodes of its tail.

    Attributes:
        nodes: The convolution first.
        output: The output of the last one.
        residual: What is added element by element.
        tail: Their operations.
    """

    nodes: tuple[ir.Node, ...]
    output: ir.Value
    residual: ir.Value | None
    tail: Tail


def _affine(node: ir.Node, walk: Walk[Scope]) -> Affine | str:
    """Read a normalization by constants, or a factor or summand of each channel."""
    anchor, site = walk.nodes[0], walk.scope.site(walk.nodes[0])
    if site.given(2) and site.constant(2) is None:
        # What is added per channel would have to be computed in each run.
        return "the convolution's bias varies"
    weight = site.constant(1)
    channels = None if weight is None else channels_of(anchor, weight.shape)
    found = affine_of(node, walk.value, channels, 0 if weight is None else weight.ndim)
    return "it has no constant for each channel" if found is None else found


def _residual(node: ir.Node, walk: Walk[Scope]) -> ir.Value | str:
    position = walk.beside(node)
    other = node.inputs[position]
    if other is None or walk.scope.site(node).constant(position) is not None:
        return "it adds a constant"
    return "it adds no image" if _is_narrow(other) else other


def _is_narrow(value: ir.Value) -> bool:
    """Return whether a value is known to be of another shape than an image, such as one number."""
    shape = value.shape
    return shape is not None and (len(shape) not in (3, 4, 5) or all(d == 1 for d in shape[2:]))


def _activation(node: ir.Node, walk: Walk[Scope]) -> Activation | str:
    """Read an activation, or a PRelu of one slope."""
    if node.op_type != "PRelu":
        return ACTIVATION_PART.read(node, walk)  # type: ignore[no-any-return]  # one, or why not
    slope = walk.scope.site(node).constant(1)
    if (node.version or 1) < BROADCASTING_OPSET or node.inputs[0] is not walk.value:
        return "it does not broadcast its slope"
    if slope is None or slope.size != 1 or slope.ndim > 3:
        return "it has not one constant slope"
    return Activation(LEAKY_RELU, float(slope.reshape(-1)[0]))


PER_CHANNEL = Part(
    "factor of each channel", ("Add", "BatchNormalization", "Div", "Mul", "Sub"), _affine, many=True
)
TAIL_RESIDUAL = Part("residual", ("Add",), _residual, since=BROADCASTING_OPSET)
ACTIVATED = Part("activation", (*ACTIVATION_PART.operators, "PRelu"), _activation)


def find_tail(node: ir.Node, scope: Scope) -> TailNodes:
    """Return the longest tail after a convolution that the fusion takes."""
    walk = scope.follow(node)
    tail = Tail(activation=walk.found.get(ACTIVATED.name, NO_ACTIVATION))
    for affine in walk.found.get(PER_CHANNEL.name, ()):
        tail.follow(affine)
    return TailNodes(walk.nodes, walk.value, walk.found.get(TAIL_RESIDUAL.name), tail)
