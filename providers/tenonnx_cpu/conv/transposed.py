"""ConvTranspose as a convolution: one kernel per phase of the result, then phases side by side.

With a stride s and a kernel of K taps, place ``s * j + r`` of the whole result is the sum over t of
``x[j - t] * w[s * t + r]``: a convolution with ``ceil(K / s)`` taps for each of the phases r. All
phases are channels of one convolution, which Conv's kernels compute with all that follows it; then
they are written into one another, without what the padding takes away.
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from tenonnx.provider import HOST
from tenonnx.records import record
from tenonnx_array.windows import Windows, place_transposed
from tenonnx_cpu.buffers import empty
from tenonnx_cpu.conv.conv import Attributes, ConvCall, request
from tenonnx_cpu.conv.tail import Tail, find_tail
from tenonnx_cpu.fuse import Fused, Scope, fusion
from tenonnx_cpu.jit.runtime import JitKernel
from tenonnx_cpu.specialise import F32, Call, NDArray, Site

if TYPE_CHECKING:
    import onnx_ir as ir

    from tenonnx.weights.weight import Weight

INTERLEAVE = JitKernel("conv.phases", "interleave_f32")

SERIAL = 1 << 15
"""Elements up to which one thread is done before others have started."""

LINES_PER_TASK = 64


@fusion("ConvTranspose")
def fuse_conv_transpose(node: ir.Node, scope: Scope) -> Fused | None:
    """A transposed convolution of float32 with constant weights, and what is done to its result."""
    site = scope.site(node)
    weight, handle = site.constant(1), site.weight(1)
    inputs = (*node.inputs[:2], node.inputs[2] if len(node.inputs) > 2 else None)
    bias = site.constant(2) if inputs[2] is not None else None
    if weight is None or handle is None or not scope.packs or weight.dtype != F32:
        return None
    if weight.ndim not in (3, 4) or (inputs[2] is not None and bias is None):
        return None
    attributes = Attributes.of(site)
    strides = attributes.strides or (1,) * (weight.ndim - 2)
    if len(strides) != weight.ndim - 2 or any(step != 1 for step in attributes.dilations or ()):
        return None
    if attributes.group < 1 or weight.shape[0] % attributes.group or not weight.size:
        return None
    tail = find_tail(node, scope, residual=False)
    request(None)
    INTERLEAVE.request()
    plain = scope.fallback(tail.nodes, inputs, tail.output)
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
    return Fused(tail.nodes, inputs, (tail.output,), call)


def _numbers(site: Site, name: str) -> tuple[int, ...] | None:
    value = site.attribute(name, None)
    return tuple(value) if value else None


@record
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
        """Returns what weights (C, M / group, kernel, ...) are as phases."""
        name = f"conv-transposed:1:{group}:{strides}"
        made = weight.derive(name, lambda: phases_of(weight.on(HOST), group, strides))
        return cls(made, group, strides)

    @property
    def count(self) -> int:
        """How many phases a channel has."""
        return math.prod(self.strides)


def phases_of(w: NDArray, group: int, strides: tuple[int, ...]) -> NDArray:
    """Returns weights (C, M / group, kernel, ...) as (M * phases, C / group, taps, ...).

    Tap ``a`` of phase ``r`` is the kernel's ``stride * (taps - 1 - a) + r``, or 0 if it has none.
    """
    channels, rows, *kernel = w.shape
    taps = [-(-k // s) for k, s in zip(kernel, strides, strict=True)]
    more = [t * s - k for t, s, k in zip(taps, strides, kernel, strict=True)]
    w = np.pad(w, [(0, 0), (0, 0), *((0, extra) for extra in more)])
    split = [size for pair in zip(taps, strides, strict=True) for size in pair]
    w = w.reshape(group, channels // group, rows, *split)
    rank = len(kernel)
    w = np.flip(w, tuple(3 + 2 * axis for axis in range(rank)))
    order = (0, 2, *(4 + 2 * axis for axis in range(rank)), 1, *(3 + 2 * a for a in range(rank)))
    shape = (group * rows * math.prod(strides), channels // group, *taps)
    return np.ascontiguousarray(w.transpose(order).reshape(shape))


@record
class Cut:
    """A transposed convolution of images of one size.

    Attributes:
        pads: Of the convolution that makes the phases, at the begin and the end of each axis.
        output: The result's size along each axis.
        sizes: What ``interleave_f32`` takes; ``None`` where one phase is the result.
    """

    pads: tuple[int, ...]
    output: tuple[int, ...]
    sizes: NDArray | None


class TransposedCall:
    """Calls the convolution and the kernel that puts phases together, or the array kernels.

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
            tail.nodes,
            tail.output,
            None if tail.scale is None else self._repeated(tail.scale),
            None if tail.shift is None else self._repeated(tail.shift),
            activation=tail.activation,
            first=tail.first,
            second=tail.second,
        )
        self._convolutions: dict[tuple[int, ...], ConvCall] = {}
        self._cuts: dict[tuple[int, ...], Cut | None] = {}

    def __call__(self, x: NDArray, w: NDArray, b: NDArray | None = None) -> Any:
        """Returns what the nodes do, all in one."""
        try:
            cut = self._cuts[x.shape]
        except KeyError:
            cut = self._cut(x.shape)
        run = INTERLEAVE.run
        if cut is None or run is None:
            return self._plain(x, w, b)
        phases = self._convolutions[cut.pads](x, self._weights, self._bias)
        if phases is None:
            return self._plain(x, w, b)
        if cut.sizes is None:
            return phases
        y = empty((x.shape[0], phases.shape[1] // self._phases.count, *cut.output))
        threads = self._threads if y.size > SERIAL else 1
        run(phases.reshape(-1), y.reshape(-1), cut.sizes, threads)
        return y

    def _repeated(self, values: NDArray) -> NDArray:
        """Returns what belongs to a channel for each of its phases."""
        return np.repeat(np.asarray(values, np.float32), self._phases.count)

    def _cut(self, shape: tuple[int, ...]) -> Cut | None:
        """Returns how images of a shape are taken; ``None`` if they are not."""
        rank = self._weights.ndim - 2
        cut = None
        if len(shape) == rank + 2 and 0 not in shape:
            try:
                cut = cut_of(self._placed(shape[2:]), self._phases.strides, shape)
            except ValueError:
                cut = None
        if cut is not None:
            if cut.sizes is not None:
                planes = shape[0] * (self._weights.shape[0] // self._phases.count)
                cut.sizes[9] = planes * -(-int(cut.sizes[6]) // int(cut.sizes[8]))
            if cut.pads not in self._convolutions:
                self._convolutions[cut.pads] = self._convolution(cut.pads)
        if len(self._cuts) > 64:
            self._cuts.clear()
        self._cuts[shape] = cut
        return cut

    def _convolution(self, pads: tuple[int, ...]) -> ConvCall:
        attributes = Attributes(self._phases.group, None, None, None, pads, "NOTSET")
        nothing: Call = lambda *_: None  # noqa: E731 - what says that no kernel took it
        return ConvCall(attributes, self._tail, self._threads, nothing, self._phases.weight)


def cut_of(windows: Windows, strides: tuple[int, ...], shape: tuple[int, ...]) -> Cut | None:
    """Returns how a result is put together; ``None`` if padding takes more than the first tap."""
    begins, ends, firsts, counts = [], [], [], []
    axes = zip(windows.size, windows.kernel, windows.begins, strides, shape[2:], strict=True)
    for size, kernel, begin, stride, length in axes:
        # Whole places that the padding takes away at the beginning need not be computed.
        whole, first = divmod(begin, stride)
        count = -(-(first + size) // stride)
        begins.append(-(-kernel // stride) - 1 - whole)
        ends.append(count - length + whole)
        firsts.append(first)
        counts.append(count)
    if min(*begins, *ends) < 0:
        return None
    pads = (*begins, *ends)
    if math.prod(strides) == 1:
        return Cut(pads, windows.size, None)
    one = (1,) * (2 - len(strides))
    zero = (0,) * len(one)
    numbers = (
        *one, *strides, *zero, *firsts, *one, *counts, *one, *windows.size, LINES_PER_TASK, 0,
    )  # fmt: skip
    return Cut(pads, windows.size, np.array(numbers, np.int64))
