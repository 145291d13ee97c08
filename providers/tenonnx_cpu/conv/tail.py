"""What follows a convolution and can be done while its result is in the cache."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from tenonnx.affine import Affine, affine_of, channels_of
from tenonnx.planning.fusion import beside
from tenonnx_cpu.activation import NONE, Activation, activation_of
from tenonnx_cpu.elementwise.opcodes import LEAKY_RELU
from tenonnx_cpu.fuse import Scope
from tenonnx_cpu.kernel_selection import NDArray
from tenonnx_cpu.matmul.product import fits

if TYPE_CHECKING:
    import onnx_ir as ir


@functools.lru_cache(maxsize=256)
def per_channel(count: int) -> tuple[NDArray, NDArray]:
    """Returns factors and summands that change nothing."""
    return np.ones(count, np.float32), np.zeros(count, np.float32)


@dataclass
class Tail:
    """Nodes from a convolution on: ``activate(conv * scale + shift + residual)``.

    Attributes:
        nodes: The convolution first.
        output: What the last of them makes.
        scale: A factor per channel, or ``None``.
        shift: What is added per channel beside the convolution's bias times the scale.
        residual: What is added element by element.
        activation: What is done to the sums.
    """

    nodes: tuple[ir.Node, ...]
    output: ir.Value
    scale: NDArray | None = None
    shift: NDArray | None = None
    residual: ir.Value | None = None
    activation: Activation = NONE
    _shifts: dict[int, tuple[NDArray, NDArray]] = field(default_factory=dict)

    def shifted(self, bias: NDArray | None) -> NDArray:
        """Returns what to add per channel, for a convolution with this bias."""
        if self.shift is None:
            assert bias is not None, "without a shift there is nothing to add but the bias"
            return bias
        if bias is None:
            return self.shift
        known = self._shifts.get(id(bias))
        if known is None or known[0] is not bias:
            scaled = bias if self.scale is None else bias * self.scale
            self._shifts.clear()
            known = self._shifts[id(bias)] = bias, (scaled + self.shift).astype(np.float32)
        return known[1]

    def summand(self, rows: int, bias: NDArray | None) -> NDArray | None:
        """Returns what is added to each of ``rows`` channels; ``None`` if kernels do not take it.

        Nor do they take factors of another number of channels, which numpy broadcasts or refuses.
        """
        if self.scale is not None and self.scale.shape != (rows,):
            return None
        if bias is None and self.shift is None:
            return per_channel(rows)[1]
        shift = self.shifted(bias)
        return shift if shift.shape == (rows,) and fits(shift) else None

    def follow(self, affine: Affine) -> None:
        """Takes one more factor and summand per channel."""
        factor, shift = affine
        if factor is None:
            factor = np.ones_like(shift)
        scale, before = self.scale, self.shift
        self.scale = (factor if scale is None else scale * factor).astype(np.float32)
        after = np.zeros_like(factor) if shift is None else shift
        self.shift = (after if before is None else before * factor + after).astype(np.float32)

    def extend(self, node: ir.Node) -> None:
        """Takes one more node."""
        self.nodes += (node,)
        self.output = node.outputs[0]


def find_tail(node: ir.Node, scope: Scope, *, residual: bool = True) -> Tail:
    """Returns the longest tail after a convolution, with or without what is added to all of it."""
    tail = Tail((node,), node.outputs[0])
    site = scope.site(node)
    # With a bias that varies, what is added per channel would have to be computed in each run.
    if not site.given(2) or site.constant(2) is not None:
        while _take(tail, scope, _take_affine):
            pass
    if residual:
        _take(tail, scope, _take_residual)
    _take(tail, scope, _take_activation)
    return tail


def _take(tail: Tail, scope: Scope, step: Callable[[Tail, ir.Node, Scope], bool]) -> bool:
    """Takes the node that follows, if it alone does and is one of a step's."""
    following = scope.reader(tail.output)
    if following is None or following.domain or not step(tail, following, scope):
        return False
    tail.extend(following)
    return True


def _take_affine(tail: Tail, node: ir.Node, scope: Scope) -> bool:
    """Folds a normalization by constants, or a factor or summand of each channel."""
    anchor = tail.nodes[0]
    weight = scope.site(anchor).constant(1)
    channels = None if weight is None else channels_of(anchor, weight.shape)
    found = affine_of(node, tail.output, channels, 0 if weight is None else weight.ndim)
    if found is None:
        return False
    tail.follow(found)
    return True


def _take_residual(tail: Tail, node: ir.Node, scope: Scope) -> bool:
    if node.op_type != "Add" or (node.version or 1) < 7:
        return False
    position = beside(node, tail.output)
    other = node.inputs[position]
    if other is None or _is_narrow(other) or scope.site(node).constant(position) is not None:
        return False
    tail.residual = other
    return True


def _is_narrow(value: ir.Value) -> bool:
    """Says whether a value is known to be of another shape than an image, such as one number."""
    shape = value.shape
    return shape is not None and (len(shape) not in (3, 4, 5) or all(d == 1 for d in shape[2:]))


def _take_activation(tail: Tail, node: ir.Node, scope: Scope) -> bool:
    site = scope.site(node)
    made = activation_of(site)
    if node.op_type == "PRelu" and (node.version or 1) >= 7:
        slope = site.constant(1)
        if slope is not None and slope.size == 1 and slope.ndim <= 3:
            made = Activation(LEAKY_RELU, float(slope.reshape(-1)[0]))
    if made is None or node.inputs[0] is not tail.output:
        return False
    tail.activation = made
    return True
