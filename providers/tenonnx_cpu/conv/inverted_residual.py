"""A convolution of single places and the depthwise one that alone reads its result, as one step.

MobileNets expand their images so: the image between is several times as large as those around it,
and is read once. Where it is computed piece by piece, no memory has more than a piece of it.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, NamedTuple

from tenonnx.by_name import cacheable
from tenonnx_array.windows import Windows
from tenonnx_cpu.buffers import empty
from tenonnx_cpu.capture.capturable import Capturable
from tenonnx_cpu.capture.launch import Launch
from tenonnx_cpu.conv.attributes import Attributes
from tenonnx_cpu.conv.channels_last import channels_first, channels_last, is_last
from tenonnx_cpu.conv.conv import NO_RESIDUAL, UNITS, flat
from tenonnx_cpu.conv.depthwise import variant_of
from tenonnx_cpu.conv.epilogue import (
    ACTIVATED,
    PER_CHANNEL,
    TAIL_RESIDUAL,
    Tail,
    TailNodes,
    find_tail,
    per_channel,
)
from tenonnx_cpu.conv.kernels import (
    EXPANDED_FIELDS,
    MAX_TASK_PRODUCTS,
    TASKS_PER_THREAD,
    UNROLLED_WINDOWS,
)
from tenonnx_cpu.conv.layout import ConvLayout, fixed, numbers_of
from tenonnx_cpu.conv.layout_assignment import better_last
from tenonnx_cpu.conv.pixels import PANEL_CHANNELS, packed
from tenonnx_cpu.fuse import PAIRED, Fused, Scope, fusion
from tenonnx_cpu.jit.code.cpu import cpu
from tenonnx_cpu.jit.runtime import JitKernel
from tenonnx_cpu.jit.scratch import worker_floats
from tenonnx_cpu.kernel_selection import NDArray, Site
from tenonnx_cpu.matmul.product import F32

if TYPE_CHECKING:
    import onnx_ir as ir

    from tenonnx.weights.weight import Weight

EXPANDED = JitKernel("conv.inverted_residual", "conv_expanded")

# Whether it has been measured to pay: with AVX2, whose second-level caches are small.
SUITED = cpu().lanes == 8

# Floats of a panel of channels that windows of some lines see, so that caches have them twice.
MAX_BAND_FLOATS = 12 << 10


@cacheable
class PairedConv(NamedTuple):
    """One of the two convolutions.

    Attributes:
        attributes: Its own.
        tail: The operations on its result.
        weight: Its kernels in the registry.
    """

    attributes: Attributes
    tail: Tail
    weight: Weight


@fusion("Conv", priority=PAIRED, takes=(PER_CHANNEL, TAIL_RESIDUAL, ACTIVATED))
def fuse_expanded(node: ir.Node, scope: Scope) -> Fused | None:
    """A convolution of single places, and the depthwise one that alone reads its result."""
    if not SUITED or not scope.packs or not _is_expansion(scope.site(node)):
        return None
    one = find_tail(node, scope)
    first, reader = _part(node, one, scope), scope.follower(one.output, "Conv")
    if first is None or reader is None or reader.inputs[0] is not one.output:
        return None
    if not _is_depthwise(scope.site(reader)):
        return None
    two = find_tail(reader, scope)
    second, output = _part(reader, two, scope), two.output
    if second is None or not better_last(output, scope):
        return None
    nodes = (*one.nodes, *two.nodes)
    inputs = *_inputs(node), *_inputs(reader)[1:]
    EXPANDED.request()
    call = ExpandedCall(first, second, scope.threads, scope.fallback(nodes, inputs, output))
    return Fused(nodes, inputs, (output,), Capturable(call.launch))


def _inputs(node: ir.Node) -> tuple[ir.Value | None, ...]:
    return (*node.inputs, None)[:3]


def _part(node: ir.Node, found: TailNodes, scope: Scope) -> PairedConv | None:
    site = scope.site(node)
    weight = site.weight(1)
    if weight is None or found.residual is not None:
        return None
    return PairedConv(Attributes.of(site), found.tail, weight)


def _is_expansion(site: Site) -> bool:
    """Return whether each place of the result is made of one of the image."""
    weight, attributes = site.constant(1), Attributes.of(site)
    if weight is None or weight.dtype != F32 or weight.ndim != 4 or attributes.group != 1:
        return False
    moved = {*(attributes.strides or ()), *(attributes.kernel or ()), *weight.shape[2:]} - {1}
    return not moved and not any(attributes.pads or ())


def _is_depthwise(site: Site) -> bool:
    """Return whether a convolution is of each channel alone, by windows with code of their own."""
    weight, attributes = site.constant(1), Attributes.of(site)
    if weight is None or weight.dtype != F32 or weight.ndim != 4 or weight.shape[1] != 1:
        return False
    kernel, strides = weight.shape[2:], attributes.strides or (1, 1)
    plain = not {*(attributes.dilations or ())} - {1} and min(attributes.pads or (0,)) >= 0
    square = kernel[0] == kernel[1] and strides[0] == strides[-1] and len(weight) > 1
    known = (kernel[0], strides[0]) in UNROLLED_WINDOWS
    return plain and square and known and attributes.group == len(weight)


@functools.lru_cache(maxsize=256)
def expanded_layout(
    shape: tuple[int, ...], channels: int, windows: Windows, threads: int, from_last: bool
) -> ConvLayout:
    """Return how to convolve images ``(N, C, H, W)``, expanded to channels, depthwise.

    Args:
        shape: Of the images.
        channels: Of the image between, and of the result, which has them last.
        windows: Square ones that have code of their own, on the image between.
        threads: How many to use at most.
        from_last: Whether images have their channels last.
    """
    (batch, depth, height, width), (out_height, out_width) = shape, windows.output
    kernel, stride, (top, left) = windows.kernel[0], windows.strides[0], windows.begins
    lines = min(
        out_height, max(1, (MAX_BAND_FLOATS // (PANEL_CHANNELS * width) - kernel) // stride + 1)
    )
    lines = -(-out_height // -(-out_height // lines))
    panels, wanted = (
        -(-channels // PANEL_CHANNELS),
        TASKS_PER_THREAD * threads if threads > 1 else 1,
    )
    together = -(-panels // min(panels, -(-wanted // batch)))
    each = PANEL_CHANNELS * out_height * (depth * width * stride + kernel * kernel * out_width)
    together = max(1, min(together, MAX_TASK_PRODUCTS // each))
    # Of a strip's first windows, what others have made is made again.
    most = max(1, out_height // (4 * kernel))
    strips = max(-(-each // MAX_TASK_PRODUCTS), min(most, -(-wanted // (batch * panels))))
    high = lines * -(-out_height // (lines * strips))
    line, seen = PANEL_CHANNELS * width, (lines - 1) * stride + kernel
    kept = max(0, kernel - stride) * line
    work = (together * kept + seen * line + 63) // 16 * 16
    tasks = batch * -(-panels // together) * -(-out_height // high)
    apart, pixel = (1, depth) if from_last else (height * width, 1)
    numbers = numbers_of(
        EXPANDED_FIELDS, depth=depth, channels=channels, height=height, width=width, pixel=pixel,
        out_height=out_height, out_width=out_width, top=top, left=left, stride=stride,
        kernel=kernel, variant=variant_of(windows), task_channels=together * PANEL_CHANNELS,
        task_height=high, together=lines, kept=kept, band=together * kept, work=work, tasks=tasks,
    )  # fmt: skip
    offsets = fixed([4 * apart * channel for channel in range(depth)])
    output = batch, out_height, out_width, channels
    return ConvLayout(numbers, min(threads, tasks), work, output, offsets)


class PairPlan(NamedTuple):
    """Both convolutions of images of a shape.

    Attributes:
        cut: How they are cut into tasks.
        expanding: Weights of the first, packed.
        sliding: Those of the second.
    """

    cut: ConvLayout
    expanding: NDArray
    sliding: NDArray


@cacheable
class ExpandedCall:
    """An inverted residual block on its kernel, or on the array kernels.

    Args:
        first: The convolution of single places.
        second: The depthwise one.
        threads: How many to use at most.
        plain: Takes the same arguments and does the same.
    """

    def __init__(self, first: PairedConv, second: PairedConv, threads: int, plain: Any) -> None:
        self._parts, self._threads, self._plain = (first, second), threads, plain
        # The weights in panels, by whether images have their channels last: a registry keeps
        # what somebody has.
        self._panels: dict[bool, tuple[NDArray, NDArray]] = {}

    def launch(
        self, x: NDArray, w: NDArray, b: NDArray | None, kernels: NDArray, bias: NDArray | None
    ) -> Any:
        """Return a launch that does what the nodes do, or what they return."""
        run, plan, tails = EXPANDED.run, None, [part.tail for part in self._parts]
        shifts = [tail.summand(w.shape[0], own) for tail, own in zip(tails, (b, bias), strict=True)]
        if run is not None and x.dtype == F32 and all(shift is not None for shift in shifts):
            plan = self._plan(x, w.shape, kernels.shape)
        if plan is None:
            return self._plain(x, w, b, kernels, bias)
        y, cut = empty(plan.cut.output), plan.cut
        finishes = [
            (per_channel(w.shape[0])[0] if tail.scale is None else tail.scale, shift, NO_RESIDUAL,
             *tail.activation, UNITS)
            for tail, shift in zip(tails, shifts, strict=True)
        ]  # fmt: skip
        arguments = (
            flat(channels_last(x) if is_last(x) else x), plan.expanding, plan.sliding,
            y.reshape(-1), *finishes[0], *finishes[1], cut.numbers, cut.offsets, cut.panel,
            cut.planes, worker_floats(cut.floats, cut.threads), cut.threads,
        )  # fmt: skip
        return Launch(run, arguments, channels_first(y))

    def _plan(self, x: NDArray, w: tuple[int, ...], kernels: tuple[int, ...]) -> PairPlan | None:
        """Return how images of a form are convolved; ``None`` if shapes do not fit."""
        first, second = self._parts
        if x.ndim != 4 or first.attributes.windows(x.shape, w) is None:
            return None
        windows = second.attributes.windows((x.shape[0], w[0], *x.shape[2:]), kernels)
        if windows is None:
            return None
        last = is_last(x)
        cut = expanded_layout(x.shape, w[0], windows, self._threads, last)
        if (panels := self._panels.get(last)) is None:
            expanding = packed(first.weight, PANEL_CHANNELS, None, last)
            panels = self._panels[last] = expanding, packed(second.weight, cpu().lanes)
        return PairPlan(cut, *panels)
