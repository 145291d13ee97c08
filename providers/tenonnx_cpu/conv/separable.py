"""A depthwise convolution between two of 1 x 1, as one step: what is between them is never whole.

MobileNetV2 (Sandler et al., 2018) and its kin consist of such blocks. Lines of the result are made
a band at a time, so that what the first two convolutions make of it stays in a core's own cache.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tenonnx_cpu.buffers import empty
from tenonnx_cpu.conv.conv import NOTHING, UNITS, Attributes, ConvCall, flat
from tenonnx_cpu.conv.depthwise import variant_of
from tenonnx_cpu.conv.layout import DEPTH, Layout, is_direct
from tenonnx_cpu.conv.separable_layout import separable_layout
from tenonnx_cpu.conv.tail import Tail, find_tail, per_channel
from tenonnx_cpu.fuse import Fused, Scope, fusion
from tenonnx_cpu.jit.code.cpu import cpu
from tenonnx_cpu.jit.runtime import JitKernel
from tenonnx_cpu.jit.scratch import floats
from tenonnx_cpu.recording.launch import Launch
from tenonnx_cpu.recording.recorded import Recorded
from tenonnx_cpu.specialise import F32, NDArray

if TYPE_CHECKING:
    import onnx_ir as ir

SEPARABLE = JitKernel("conv.separable", "conv_separable")

LEAST = 280 << 10
"""Floats between the convolutions of an image from which on it is cut into bands."""

WEIGHTS = 256 << 10
"""Floats at most of the last one's weights, which every band reads again."""


@dataclass(frozen=True)
class Stage:
    """One of the convolutions, with constants for weights and bias.

    Attributes:
        is_pointwise: Whether it is of 1 x 1 and over all channels; otherwise it is depthwise.
    """

    call: ConvCall
    attributes: Attributes
    tail: Tail
    w: NDArray
    b: NDArray | None
    is_pointwise: bool

    @classmethod
    def of(cls, node: ir.Node | None, scope: Scope) -> Stage | None:
        """Returns a convolution as a stage, if it is one of 1 x 1 or depthwise."""
        if node is None or node.domain or node.op_type != "Conv" or not scope.has(node):
            return None
        site = scope.site(node)
        w, b = site.constant(1), site.constant(2)
        biased = len(node.inputs) > 2 and node.inputs[2] is not None
        if w is None or w.dtype != F32 or w.ndim != 4 or (biased and b is None):
            return None
        attributes = Attributes.of(site)
        is_pointwise = w.shape[2:] == (1, 1) and attributes.group == 1
        if not is_pointwise and (attributes.group == 1 or w.shape[:2] != (attributes.group, 1)):
            return None
        tail = find_tail(node, scope)
        inputs = (node.inputs[0], *node.inputs[1:3], *[None] * (3 - len(node.inputs)))
        plain = scope.fallback(tail.nodes, (*inputs, tail.residual), tail.output)
        handle = site.weight(1) if scope.packs else None
        call = ConvCall(attributes, tail, scope.threads, plain, handle)
        return cls(call, attributes, tail, w, b, is_pointwise)

    def following(self, scope: Scope) -> Stage | None:
        """Returns the convolution that alone reads the result."""
        return None if self.tail.residual else Stage.of(scope.reader(self.tail.output), scope)


@fusion("Conv", turn=-1)
def fuse_separable(node: ir.Node, scope: Scope) -> Fused | None:
    """A convolution of 1 x 1, perhaps, a depthwise one, and one of 1 x 1; and what follows each."""
    first = Stage.of(node, scope) if cpu().lanes >= 8 else None
    if first is None:
        return None
    stages = [first]
    while len(stages) < 2 + first.is_pointwise:
        following = stages[-1].following(scope)
        if following is None or stages[-1].is_pointwise is following.is_pointwise:
            return None
        stages.append(following)
    SEPARABLE.request()
    nodes = tuple(node for stage in stages for node in stage.tail.nodes)
    tail = stages[-1].tail
    call = Separable(stages, scope.threads)
    return Fused(nodes, (node.inputs[0], tail.residual), (tail.output,), Recorded(call))


class Separable:
    """Calls the kernel for all of the stages, or that of each of them."""

    def __init__(self, stages: list[Stage], threads: int) -> None:
        self._stages, self._threads = stages, threads
        self._tails = [stage.tail for stage in stages]
        self._cuts: dict[tuple[int, ...], Layout | None] = {}
        self._weights = [flat(stage.w) for stage in stages]
        if len(stages) == 2:
            self._weights.insert(0, NOTHING)
        scales = [
            per_channel(stage.w.shape[0])[0] if stage.tail.scale is None else stage.tail.scale
            for stage in stages
        ]
        shifts = [stage.tail.summand(stage.w.shape[0], stage.b) for stage in stages]
        self._numbers = None
        if all(shift is not None for shift in shifts):
            bounds = [(0.0, 0.0)] * (3 - len(stages))
            bounds += [(tail.first, tail.second) for tail in self._tails]
            self._numbers = (
                np.concatenate(scales),
                np.concatenate([shift for shift in shifts if shift is not None]),
                np.array(bounds, np.float32).reshape(-1),
            )

    def __call__(self, x: NDArray, residual: NDArray | None = None) -> Any:
        """Returns what the last stage makes of the first one's image."""
        if x.shape not in self._cuts:
            if len(self._cuts) > 64:
                self._cuts.clear()
            self._cuts[x.shape] = self._cut(x.shape)
        cut, run = self._cuts[x.shape], SEPARABLE.run
        if cut is None or run is None or self._numbers is None or x.dtype != F32:
            return self._in_turn(x, residual)
        added = NOTHING
        if residual is not None:
            if residual.shape != cut.output or residual.dtype != F32:
                return self._in_turn(x, residual)
            added = flat(residual)
        y = empty(cut.output)
        arguments = (
            flat(x), *self._weights, y.reshape(-1), added, *self._numbers, UNITS, cut.numbers,
            cut.offsets, floats(cut.floats * cut.threads), cut.threads,
        )  # fmt: skip
        return Launch(run, arguments, y)

    def _in_turn(self, x: NDArray, residual: NDArray | None) -> Any:
        *others, last = self._stages
        for stage in others:
            x = stage.call(x, stage.w, stage.b)
        return last.call(x, last.w, last.b, residual)

    def _cut(self, shape: tuple[int, ...]) -> Layout | None:
        """Returns how to cut the work, if it is worth cutting."""
        if len(shape) != 4 or 0 in shape:
            return None
        image, middle = shape, None
        for stage in self._stages:
            windows = stage.attributes.windows(image, stage.w.shape)
            if windows is None or (stage.is_pointwise and not is_direct(windows)):
                return None
            if not stage.is_pointwise:
                middle = windows
            image = (image[0], stage.w.shape[0], *windows.output)
        expands = len(self._stages) > 2
        hidden = self._stages[-1].w.shape[1]
        assert middle is not None, "one of the stages is depthwise"
        between = hidden * (math.prod(middle.size) * expands + math.prod(middle.output))
        within = max(*middle.begins, *middle.ends) < middle.kernel[0]
        if (
            hidden * image[1] > WEIGHTS
            or between < LEAST
            or not variant_of(middle)
            or not within
            or min(middle.begins) < 0
        ):
            return None
        if expands and shape[1] > DEPTH:
            return None
        kinds = (*[0] * (3 - len(self._stages)), *(tail.activation for tail in self._tails))
        return separable_layout(shape, hidden, image[1], middle, expands, kinds, self._threads)
