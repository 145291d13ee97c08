"""The choice of a kernel for images of a form, and of its tasks, in the order of trial."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from tenonnx.by_name import cacheable
from tenonnx_array.windows import Windows
from tenonnx_cpu.conv.attributes import Attributes
from tenonnx_cpu.conv.depthwise import (
    PLAN_CHANNELS,
    PLAN_DEPTHWISE,
    channels_layout,
    depthwise_layout,
    is_narrow,
    variant_of,
)
from tenonnx_cpu.conv.kernels import COLUMNS_PER_TASK
from tenonnx_cpu.conv.layout import (
    CHAIN_DEPTH,
    PLAN_CONV,
    WRITE_OFFSETS,
    ConvLayout,
    layout,
)
from tenonnx_cpu.conv.layout_assignment import SUITED
from tenonnx_cpu.conv.padding_taps import kept, reached, without_others
from tenonnx_cpu.conv.pixels import PANEL_CHANNELS, PLAN_PIXELS, packed, pixels_layout
from tenonnx_cpu.conv.tiles import tile_weights, tiles_layout
from tenonnx_cpu.conv.winograd import PLAN_WINOGRAD, tile_size, tiled, winograd_layout
from tenonnx_cpu.jit.code.cpu import cpu
from tenonnx_cpu.jit.runtime import JitKernel
from tenonnx_cpu.kernel_selection import NDArray

if TYPE_CHECKING:
    from tenonnx.weights.weight import Weight

CONV = JitKernel("conv.conv", "conv_f32")
DEPTHWISE = JitKernel("conv.depthwise", "conv_depthwise")
CHANNELS = JitKernel("conv.channels", "conv_channels")
PIXELS = JitKernel("conv.pixels", "conv_pixels")
WINOGRAD = JitKernel("conv.winograd", "conv_winograd")
CONV_TILES = JitKernel("conv.tiles", "conv_tiles")

# The kernels that plan the tasks of others.
PLANNERS = (PLAN_CONV, WRITE_OFFSETS, PLAN_DEPTHWISE, PLAN_CHANNELS, PLAN_PIXELS, PLAN_WINOGRAD)


# Places that fill vectors worse than channels do, where each sees so many numbers; and weights up
# to which that is worth a copy of them.
MAX_PANEL_PLACES, MIN_PANEL_DEPTH, MAX_PANEL_WEIGHTS = 100, 64, 1 << 16

# Floats that the places of a task see at most, if channels need not be last: they are read again
# for every panel of channels, and the second-level cache should have them then.
SEEN = 1 << 18


def request(weight: NDArray | None, narrows: bool = False) -> None:
    """Have kernels compiled; ``weight`` is what images will be convolved with, if that is known."""
    if narrows:
        CONV_TILES.request()
    for kernel in (*PLANNERS, CONV, DEPTHWISE, CHANNELS, PIXELS):
        kernel.request()
    if weight is not None and (3, 3) in (weight.shape[1:3], weight.shape[2:]):
        WINOGRAD.request()


class ConvPlan(NamedTuple):
    """The convolution of images of a shape.

    Attributes:
        kernel: What does it.
        cut: How it is cut into tasks.
        weights: What is made of the weights for it, if anything is.
        from_last: Whether images have their channels last.
        to_last: Whether the result has.
    """

    kernel: JitKernel
    cut: ConvLayout
    weights: NDArray | None = None
    from_last: bool = False
    to_last: bool = False


@cacheable
@dataclass(frozen=True)
class Choice:
    """Chooses for a convolution.

    Attributes:
        attributes: The convolution's.
        threads: How many to use at most.
        weight: What the kernels are in the registry, if they are and may be transformed.
        last: Whether results had better have their channels last.
        chain: About how many products to add one after the other.
        narrows: Whether factors may be rounded to bfloat16.
        adds: Whether something of the result's shape is added to it.
        derived: What was made of the weights.
    """

    attributes: Attributes
    threads: int
    weight: Weight | None = None
    last: bool = False
    chain: int = CHAIN_DEPTH
    narrows: bool = False
    adds: bool = False
    derived: dict[Any, NDArray] = field(default_factory=dict, compare=False)

    def plans(
        self, x: tuple[int, ...], from_last: bool, free: bool, w: tuple[int, ...]
    ) -> Iterator[ConvPlan]:
        """Return how to convolve images: what is tried first, and otherwise.

        Args:
            x: The images' shape.
            from_last: Whether they have their channels last in memory.
            free: Whether the result may have.
            w: The weights' shape.
        """
        if None in [kernel.run for kernel in PLANNERS]:
            return
        group, threads, to_last = self.attributes.group, self.threads, self.last and free
        if len(x) == 5:
            volume = self.attributes.placed(x, w)
            if volume is not None:
                yield ConvPlan(CONV, layout(x, w[0], group, volume, threads))
            return
        windows = self.attributes.windows(x, w)
        if windows is None:
            return
        shape = (*x[:2], *windows.size)
        if w[1] == 1 and group > 1:
            yield from self._of_channels(shape, w, windows, from_last, to_last)
            return
        if self.narrows and self.weight is not None and group == 1 and min(windows.begins) >= 0:
            firsts = not from_last and not (to_last and self.adds)
            if firsts and (size := self._tile_size(x[0], w, windows, narrows=True)):
                yield self._by_winograd(shape, w[0], size, windows)
            cut = tiles_layout(shape, w[0], windows, threads, from_last, to_last)
            made = self._derived(tile_weights, windows.kernel, windows.dilations)
            yield ConvPlan(CONV_TILES, cut, made, from_last, to_last)
        weights = None
        if self.weight is not None:
            taps = reached(windows)
            if taps is not None:
                windows, weights = without_others(windows, taps), self._derived(kept, taps)
            elif group == 1 and (size := self._tile_size(x[0], w, windows)):
                yield self._by_winograd(shape, w[0], size, windows)
                yield ConvPlan(CONV, layout(shape, w[0], group, windows, threads, self.chain))
                return
            if group == 1 and min(windows.begins) >= 0:
                form = from_last, to_last or windows.output == (1, 1)
                if self._suits_places(shape[1], w[0], windows, form):
                    cut = pixels_layout(shape, w[0], windows, threads, *form)
                    made = self._derived(packed, PANEL_CHANNELS, taps, from_last)
                    yield ConvPlan(PIXELS, cut, made, *form)
        yield ConvPlan(CONV, layout(shape, w[0], group, windows, threads, self.chain), weights)

    def _tile_size(
        self, batch: int, w: tuple[int, ...], windows: Windows, *, narrows: bool = False
    ) -> int:
        """Return the size of the tiles that take the least time; 0 for none."""
        if windows.kernel != (3, 3) or WINOGRAD.run is None:
            return 0
        return tile_size(batch, w[0], w[1], windows, narrows=narrows)

    def _by_winograd(
        self, shape: tuple[int, ...], rows: int, size: int, windows: Windows
    ) -> ConvPlan:
        cut = winograd_layout(shape, rows, size, windows, self.threads)
        return ConvPlan(WINOGRAD, cut, self._derived(tiled, size))

    def _suits_places(
        self, channels: int, rows: int, windows: Windows, form: tuple[bool, bool]
    ) -> bool:
        """Return whether places are better rows of products than columns.

        Args:
            channels: Of the images.
            rows: Channels of the result.
            windows: What places see.
            form: Whether images have their channels last, and whether the result has.
        """
        if self.weight is None:
            return False
        if form[0] or windows.output == (1, 1):
            return True
        depth, places = channels * math.prod(windows.kernel), math.prod(windows.output)
        if form[1] and depth * min(COLUMNS_PER_TASK, places) <= SEEN:
            return True
        fills = places <= MAX_PANEL_PLACES and 2 * rows >= PANEL_CHANNELS
        near = MIN_PANEL_DEPTH <= depth <= MAX_PANEL_WEIGHTS // rows
        # Phases are put together where rows are channels.
        return fills and near and self.chain == CHAIN_DEPTH

    def _of_channels(
        self,
        shape: tuple[int, ...],
        w: tuple[int, ...],
        windows: Windows,
        from_last: bool,
        to_last: bool,
    ) -> Iterator[ConvPlan]:
        fits = w[0] == shape[1] and variant_of(windows) and min(windows.begins) >= 0
        wanted = SUITED and (to_last or from_last or is_narrow(windows))
        if self.weight is not None and fits and wanted:
            form = from_last, to_last
            cut = channels_layout(shape, windows, self.threads, *form)
            yield ConvPlan(CHANNELS, cut, self._derived(packed, cpu().lanes), *form)
        yield ConvPlan(DEPTHWISE, depthwise_layout(shape, w[0], windows, self.threads))

    def _derived(self, make: Callable[..., NDArray], *how: Any) -> NDArray:
        """Return what is made of the weights; the registry is asked once."""
        key = make, *how
        if (made := self.derived.get(key)) is None:
            made = self.derived[key] = make(self.weight, *how)
        return made
