"""Conv on the CPU provider's own kernels, with what follows it: norm, addition, activation."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tenonnx_array.windows import Windows, place
from tenonnx_cpu.buffers import empty
from tenonnx_cpu.conv_layout import Layout, layout
from tenonnx_cpu.conv_tail import Tail, find_tail
from tenonnx_cpu.depthwise import depthwise_layout
from tenonnx_cpu.fuse import Fused, Scope, fusion
from tenonnx_cpu.jit.runtime import JitKernel
from tenonnx_cpu.product import F32, fits, floats
from tenonnx_cpu.specialise import NDArray, Site
from tenonnx_cpu.winograd import tile_size, tiled, winograd_layout

if TYPE_CHECKING:
    from collections.abc import Iterator

    import onnx_ir as ir

    from tenonnx.weight import Weight

CONV = JitKernel("conv_f32", "conv_f32")
DEPTHWISE = JitKernel("conv_depthwise", "conv_depthwise")
WINOGRAD = JitKernel("conv_winograd", "conv_winograd")

NOTHING = np.empty(0, np.float32)
UNITS = np.repeat(np.array([1, 0], np.float32), 64)
"""What stands for a factor, a summand or a residual that is not wanted."""


def flat(array: NDArray) -> NDArray:
    """Returns float32 one after the other and aligned, which takes a copy if they are not."""
    return (array if fits(array) else np.require(array, requirements=["C", "A"])).reshape(-1)


@functools.lru_cache(maxsize=256)
def per_channel(count: int) -> tuple[NDArray, NDArray]:
    """Returns factors and summands that change nothing."""
    return np.ones(count, np.float32), np.zeros(count, np.float32)


@dataclass(frozen=True)
class Attributes:
    """A convolution's attributes, and where they put its windows."""

    group: int
    kernel: tuple[int, ...] | None
    strides: tuple[int, ...] | None
    dilations: tuple[int, ...] | None
    pads: tuple[int, ...] | None
    auto_pad: str

    @classmethod
    def of(cls, site: Site) -> Attributes:
        """Returns the attributes of a node."""

        def numbers(name: str) -> tuple[int, ...] | None:
            value = site.attribute(name, None)
            return None if value is None else tuple(value)

        return cls(
            site.attribute("group", 1),
            numbers("kernel_shape"),
            numbers("strides"),
            numbers("dilations"),
            numbers("pads"),
            site.attribute("auto_pad", "NOTSET"),
        )

    def windows(self, x: tuple[int, ...], w: tuple[int, ...]) -> Windows | None:
        """Returns the windows of an image of one or two dimensions; ``None`` if shapes do not fit.

        A line is an image of one row.
        """
        if len(x) != len(w) or len(x) not in (3, 4) or 0 in (*x, *w):
            return None
        if x[1] != w[1] * self.group or w[0] % self.group or self.kernel not in (None, w[2:]):
            return None
        try:
            windows = place(
                x[2:],
                w[2:],
                strides=self.strides,
                dilations=self.dilations,
                pads=self.pads,
                auto_pad=self.auto_pad,
            )
        except ValueError:
            return None
        if 0 in windows.output:
            return None
        if len(x) == 4:
            return windows
        ahead = ((1,), (1,), (1,), (1,), (0,), (0,), (1,))
        fields = (
            windows.size, windows.kernel, windows.strides, windows.dilations,
            windows.begins, windows.ends, windows.output,
        )  # fmt: skip
        return Windows(*(one + own for one, own in zip(ahead, fields, strict=True)))


@fusion("Conv")
def fuse_conv(node: ir.Node, scope: Scope) -> Fused | None:
    """A convolution of float32 and what is done to its result."""
    site = scope.site(node)
    weight = site.constant(1)
    if weight is not None and weight.dtype != F32:
        return None
    tail = find_tail(node, scope)
    CONV.request()
    DEPTHWISE.request()
    if weight is not None and weight.shape[2:] == (3, 3):
        WINOGRAD.request()
    inputs = (*node.inputs[:2], node.inputs[2] if len(node.inputs) > 2 else None, tail.residual)
    plain = scope.fallback(tail.nodes, inputs, tail.output)
    call = ConvCall(Attributes.of(site), tail, scope.threads, plain, site.weight(1))
    return Fused(tail.nodes, inputs, (tail.output,), call)


@dataclass(frozen=True)
class Plan:
    """How to convolve images of a shape.

    Attributes:
        kernel: What does it.
        cut: How it is cut into tasks.
        tiled: Weights transformed for the tiles that it works on, if it does.
    """

    kernel: JitKernel
    cut: Layout
    tiled: NDArray | None = None


class ConvCall:
    """Calls the kernel that fits, or the array kernels.

    Args:
        attributes: The convolution's.
        tail: What is done to its result.
        threads: How many to use at most.
        plain: Takes the same arguments and does the same.
        weight: What the kernels are in the registry, if they are.
    """

    def __init__(
        self,
        attributes: Attributes,
        tail: Tail,
        threads: int,
        plain: Any,
        weight: Weight | None = None,
    ) -> None:
        self._attributes = attributes
        self._tail = tail
        self._threads = threads
        self._plain = plain
        self._weight = weight
        self._plans: dict[Any, tuple[Plan, ...]] = {}

    def __call__(
        self, x: NDArray, w: NDArray, b: NDArray | None = None, residual: NDArray | None = None
    ) -> Any:
        """Returns what the nodes do, all in one."""
        key = (x.shape, w.shape)
        try:
            plans = self._plans[key]
        except KeyError:
            if len(self._plans) > 64:
                self._plans.clear()
            plans = self._plans[key] = tuple(self._plan(*key))
        if x.dtype == F32 and w.dtype == F32:
            for plan in plans:
                y = self._run(plan, x, w, b, residual)
                if y is not None:
                    return y
        return self._plain(x, w, b, residual)

    def _run(
        self, plan: Plan, x: NDArray, w: NDArray, b: NDArray | None, residual: NDArray | None
    ) -> NDArray | None:
        run, tail, cut = plan.kernel.run, self._tail, plan.cut
        if run is None:
            return None
        shape = cut.output if x.ndim == 4 else (*cut.output[:2], cut.output[3])
        ones, zeros = per_channel(w.shape[0])
        scale, shift = ones if tail.scale is None else tail.scale, zeros
        if b is not None or tail.shift is not None:
            shift = tail.shifted(b)
            if shift.shape != w.shape[:1] or not fits(shift):
                return None
        if residual is None:
            added = NOTHING
        elif residual.shape == shape and residual.dtype == F32:
            added = flat(residual)
        else:
            return None
        y, memory = empty(shape), floats(cut.floats * cut.threads)
        run(
            flat(x), flat(w) if plan.tiled is None else plan.tiled, y.reshape(-1),
            scale, shift, added, tail.activation, tail.first, tail.second, UNITS,
            cut.numbers, cut.offsets, cut.panel, cut.planes, memory, cut.threads,
        )  # fmt: skip
        # One number that is not finite makes all of its tile so.
        return y if plan.tiled is None or memory[0] == 0 else None

    def _plan(self, x: tuple[int, ...], w: tuple[int, ...]) -> Iterator[Plan]:
        """Returns how to convolve images of a shape: what is tried first, and otherwise."""
        group, threads = self._attributes.group, self._threads
        windows = self._attributes.windows(x, w)
        if windows is None:
            return
        shape = (*x[:2], *windows.size)
        if w[1] == 1 and group > 1:
            yield Plan(DEPTHWISE, depthwise_layout(shape, w[0], windows, threads))
            return
        if group == 1 and self._weight is not None and WINOGRAD.run is not None:
            size = tile_size(shape[0], w[0], w[1], windows)
            if size:
                cut = winograd_layout(shape, w[0], size, windows, threads)
                yield Plan(WINOGRAD, cut, tiled(self._weight, size))
        yield Plan(CONV, layout(shape, w[0], group, windows, threads))
