"""ConvTranspose as a convolution: one kernel per phase of the result, then phases side by side.

All phases are channels of one convolution, which Conv's kernels compute with all that follows it;
then they are written into one another, without what the padding takes away.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tenonnx.by_name import cacheable
from tenonnx.provider import HOST
from tenonnx_array.windows import place_transposed
from tenonnx_cpu.buffers import F32, empty, frozen
from tenonnx_cpu.capture.capturable import Capturable
from tenonnx_cpu.capture.launch import Launch, done
from tenonnx_cpu.conv.attributes import Attributes
from tenonnx_cpu.conv.conv import ConvCall
from tenonnx_cpu.conv.epilogue import ACTIVATED, PER_CHANNEL, Tail, find_tail
from tenonnx_cpu.conv.polyphase import PhaseLayout, cut_of, phases_of
from tenonnx_cpu.conv.select import CONV, request
from tenonnx_cpu.fuse import Fused, Scope, fusion
from tenonnx_cpu.jit.runtime import JitKernel
from tenonnx_cpu.jit.scratch import floats
from tenonnx_cpu.kernel_selection import Call, NDArray, Site

if TYPE_CHECKING:
    import onnx_ir as ir

    from tenonnx.weights.weight import Weight

INTERLEAVE = JitKernel("conv.polyphase", "interleave_f32")
CONV_TRANSPOSED = JitKernel("conv.transposed", "conv_transposed_f32")

# Floats of phases up to which they are in the memory that a thread keeps.
MAX_KEPT_FLOATS = 1 << 16

# Products that are added one after the other: those of several taps, of which others add one.
CHAIN = 64

# Elements up to which one thread is done before others have started.
MAX_SERIAL_TRANSPOSED_ELEMENTS = 1 << 15


@fusion("ConvTranspose", takes=(PER_CHANNEL, ACTIVATED))
def fuse_conv_transpose(node: ir.Node, scope: Scope) -> Fused | None:
    """A transposed convolution of float32 with constant weights, and what is done to its result."""
    site = scope.site(node)
    weight, handle = site.constant(1), site.weight(1)
    inputs = (*node.inputs[:2], node.inputs[2] if len(node.inputs) > 2 else None)
    bias = site.constant(2) if inputs[2] is not None else None
    if weight is None or handle is None or not scope.packs or weight.dtype != F32:
        return None
    if weight.ndim not in (3, 4, 5) or (inputs[2] is not None and bias is None):
        return None
    attributes = Attributes.of(site)
    strides = attributes.strides or (1,) * (weight.ndim - 2)
    if len(strides) != weight.ndim - 2 or any(step != 1 for step in attributes.dilations or ()):
        return None
    if len(attributes.dilations or strides) != len(strides):
        return None
    if tuple(site.attribute("kernel_shape", ()) or weight.shape[2:]) != weight.shape[2:]:
        return None
    if bias is not None and bias.shape != (weight.shape[1] * attributes.group,):
        return None
    if attributes.group < 1 or weight.shape[0] % attributes.group or not weight.size:
        return None
    nodes, output, _, tail = find_tail(node, scope)
    request(None)
    INTERLEAVE.request()
    CONV_TRANSPOSED.request()
    plain = scope.fallback(nodes, inputs, output)
    phases = Phases.of(handle, attributes.group, strides)
    placed = functools.partial(
        place_transposed,
        kernel=weight.shape[2:],
        strides=strides,
        pads=attributes.pads,
        auto_pad=attributes.auto_pad,
        output_padding=_numbers(site, "output_padding"),
        output_shape=_numbers(site, "output_shape"),
    )
    call = TransposedCall(phases, placed, tail, bias, scope.threads, plain)
    return Fused(nodes, inputs, (output,), Capturable(call.launch))


def _whole(made: Launch, cut: PhaseLayout, numbers: NDArray) -> Launch:
    """Return a launch of a convolution that puts its phases together besides."""
    x, w, phases, *rest, memory, threads = made.arguments
    place = memory.size
    room = floats(place + phases.size)
    y = empty(cut.output)
    return Launch(
        CONV_TRANSPOSED.run, (x, w, y.reshape(-1), *rest, numbers, room, place, threads), y
    )


def _numbers(site: Site, name: str) -> tuple[int, ...] | None:
    value = site.attribute(name, None)
    return tuple(value) if value else None


@cacheable
@dataclass(frozen=True)
class Phases:
    """The weights of a transposed convolution as those of a convolution.

    Attributes:
        weight: (M * phases, C / group, taps, ...), a derived weight.
        group: The number of groups.
        strides: Phases along each axis.
    """

    weight: Weight
    group: int
    strides: tuple[int, ...]

    @classmethod
    def of(cls, weight: Weight, group: int, strides: tuple[int, ...]) -> Phases:
        """Return what weights (C, M / group, kernel, ...) are as phases."""
        name = f"conv-transposed:1:{group}:{strides}"
        made = weight.derive(name, lambda: phases_of(weight.on(HOST), group, strides))
        return cls(made, group, strides)

    @property
    def count(self) -> int:
        """The number of phases of a channel."""
        return math.prod(self.strides)


@cacheable
class TransposedCall:
    """A transposed convolution: phases on a kernel that puts them together, or the array kernels.

    Args:
        phases: The weights.
        placed: Returns the windows for a size of images.
        tail: What is done to the result; no residual is added.
        bias: What is added per channel, if anything.
        threads: How many to use at most.
        plain: Takes image, weights and bias, and does the same.
    """

    def __init__(
        self,
        phases: Phases,
        placed: Any,
        tail: Tail,
        bias: NDArray | None,
        threads: int,
        plain: Call,
    ) -> None:
        self._phases, self._placed, self._threads, self._plain = phases, placed, threads, plain
        self._weights = phases.weight.on(HOST)
        self._bias = None if bias is None else self._repeated(bias)
        self._tail = Tail(
            None if tail.scale is None else self._repeated(tail.scale),
            None if tail.shift is None else self._repeated(tail.shift),
            activation=tail.activation,
        )
        self._convolutions: dict[tuple[int, ...], ConvCall] = {}
        self._cuts: dict[tuple[int, ...], PhaseLayout | None] = {}

    def launch(self, x: NDArray, w: NDArray, b: NDArray | None = None) -> Any:
        """Return a launch that does what the nodes do, or what it returns."""
        try:
            cut = self._cuts[x.shape]
        except KeyError:
            cut = self._cut(x.shape)
        if cut is None or INTERLEAVE.run is None:
            return self._plain(x, w, b)
        given = x, self._weights, self._bias, None
        made = self._convolutions[cut.pads].launch(*given)
        if type(made) is not Launch:
            return self._plain(x, w, b)
        if cut.numbers is None and made.refusal is None:
            return made
        small = made.run is CONV.run and made.result.size <= MAX_KEPT_FLOATS
        if cut.numbers is not None and CONV_TRANSPOSED.run is not None and small:
            return _whole(made, cut, cut.numbers)
        phases = done(made, given)
        if phases is None:
            return self._plain(x, w, b)
        if cut.numbers is None:
            return phases
        y = empty(cut.output)
        threads = self._threads if y.size > MAX_SERIAL_TRANSPOSED_ELEMENTS else 1
        INTERLEAVE.run(phases.reshape(-1), y.reshape(-1), cut.numbers, threads)
        return y

    def _repeated(self, values: NDArray) -> NDArray:
        """Return what belongs to a channel for each of its phases."""
        return frozen(np.repeat(np.asarray(values, np.float32), self._phases.count))

    def _cut(self, shape: tuple[int, ...]) -> PhaseLayout | None:
        """Return how images of a shape are taken; ``None`` if they are not."""
        rank = self._weights.ndim - 2
        cut = None
        if len(shape) == rank + 2 and 0 not in shape:
            try:
                output = shape[0], self._weights.shape[0] // self._phases.count
                cut = cut_of(self._placed(shape[2:]), self._phases.strides, shape[2:], output)
            except ValueError:
                cut = None
        if cut is not None and cut.pads not in self._convolutions:
            self._convolutions[cut.pads] = self._convolution(cut.pads)
        if len(self._cuts) > 64:
            self._cuts.clear()
        self._cuts[shape] = cut
        return cut

    def _convolution(self, pads: tuple[int, ...]) -> ConvCall:
        attributes = Attributes(self._phases.group, None, None, None, pads, "NOTSET")
        weight = self._phases.weight
        return ConvCall(attributes, self._tail, self._threads, _nothing, weight, chain=CHAIN)


def _nothing(*_: Any) -> None:
    """Say that no kernel takes the arrays."""
