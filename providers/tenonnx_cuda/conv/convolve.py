"""Convolution: by cuDNN where it is, or by kernels of the provider's own."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tenonnx.graph import attribute
from tenonnx.graph.traits import ACTIVATIONS, parameters_of
from tenonnx.operators import Array
from tenonnx.planning.anchors import BROADCASTING_OPSET, Part, Walk, clip_bounds
from tenonnx.planning.lower import is_constant
from tenonnx.provider import HOST
from tenonnx_array.conv import check_weights
from tenonnx_array.windows import Windows, place, place_transposed
from tenonnx_cuda.conv import layouts
from tenonnx_cuda.conv.by_cudnn import by_cudnn, on_tensor_cores
from tenonnx_cuda.conv.depthwise import depthwise
from tenonnx_cuda.conv.implicit import implicit
from tenonnx_cuda.conv.task import ConvTask, Ending
from tenonnx_cuda.elementwise.formulas import ENDINGS
from tenonnx_cuda.fuse import Fused, Scope, fusion
from tenonnx_cuda.kernel_selection import Call, Instead, Site, Target, choose, same_element
from tenonnx_cuda.platform import NDArray

if TYPE_CHECKING:
    import onnx_ir as ir

    from tenonnx.weights.weight import Weight

# Pixels of a channel, which kernels count by an int.
MAX_CHANNEL_PIXELS: Final = 2**31 - 1


@choose("Conv")
def conv(site: Site, plain: Call) -> Call | Instead:
    """Conv, with a bias."""
    return instead(site, Convolving.of(site, plain, Ending()))


@choose("FusedConv", domain="com.microsoft")
def fused_conv(site: Site, plain: Call) -> Call | Instead | None:
    """FusedConv: with a sum and an activation."""
    name = site.attribute("activation", "")
    if name not in ENDINGS:
        return None
    given = site.attribute("activation_params", ())
    return instead(site, Convolving.of(site, plain, _named(name, given)))


def _residual(node: ir.Node, walk: Walk[Scope]) -> ir.Value | str:
    added = node.inputs[walk.beside(node)]
    return "it adds a constant" if added is None or is_constant(added) else added


def _ending(node: ir.Node, _: Walk[Scope]) -> Ending | str:
    name = node.op_type
    if name == "Clip":
        bounds = clip_bounds(node)
        if bounds is None or not all(map(math.isfinite, bounds)):
            return "its bounds are not both known before"
        return Ending(name, *bounds)
    if name == "Gelu" and attribute(node, "approximate", "none") == "tanh":
        name = "GeluTanh"
    return _named(name, [attribute(node, *known) for known in ACTIVATIONS.get(name, {}).items()])


RESIDUAL_PART = Part("residual", ("Add",), _residual, since=BROADCASTING_OPSET)
ENDING_PART = Part("activation", tuple(ENDINGS), _ending)


@fusion("Conv", takes=(RESIDUAL_PART, ENDING_PART))
def fuse_conv(node: ir.Node, scope: Scope) -> Fused | None:
    """Take a convolution, what is added to it and an activation, if there are two nodes."""
    walk = scope.follow(node)
    if len(walk.nodes) < 2:
        return None
    ending, last = walk.found.get(ENDING_PART.name, Ending()), walk.nodes[-1]
    site = scope.site(node)
    call = instead(site, Convolving.of(site, None, ending, last=last))
    inputs = (*node.inputs, None)[:3]
    if isinstance(call, Instead):
        inputs, call = (*call.inputs(node), None)[:3], call.call
    return Fused(walk.nodes, (*inputs, walk.found.get(RESIDUAL_PART.name)), (walk.value,), call)


def _named(name: str, given: Sequence[float]) -> Ending:
    """Return what an activation does, with the defaults of what is not given."""
    return Ending(name, *[*parameters_of(name, given), 0.0, 0.0][:2])


@choose("ConvTranspose")
def conv_transpose(site: Site, plain: Call) -> Call | Instead | None:
    """ConvTranspose, where cuDNN is."""
    if site.target.platform.cudnn is None:
        return None
    return instead(site, Convolving.of(site, plain, Ending(), transposed=True))


def instead(site: Site, call: Convolving) -> Call | Instead:
    """Have a call read its constant weights in cuDNN's layout, if they have another one."""
    weight = site.weight(1)
    if weight is None or len(weight.shape) < 3:
        return call
    if not on_tensor_cores(site.target, weight.dtype.numpy()):
        return call
    if math.prod(weight.shape[2:]) == 1 or weight.shape[1] == 1:
        return call  # that is the same bytes
    turned = weight.derive("channels-last:1", functools.partial(_channels_last, weight))
    return Instead(functools.partial(_channels_first, call), {1: turned})


def _channels_first(call: Call, x: Array, w: Array, *more: Array | None) -> Array:
    return call(x, layouts.first(w), *more)


def _channels_last(weight: Weight) -> NDArray:
    return np.ascontiguousarray(np.moveaxis(weight.on(HOST), 1, -1))


@dataclass(frozen=True)
class Convolving:
    """A call of X, W, B and what is added.

    Attributes:
        target: The device.
        plain: Takes what the kernels do not; ``None`` for nothing.
        ending: What becomes of the results.
        group: Groups of channels.
        geometry: The attributes that place windows.
        transposed: It goes the other way.
        free: The result may have its channels last.
    """

    target: Target
    plain: Call | None
    ending: Ending
    group: int
    geometry: Mapping[str, Any]
    transposed: bool
    free: bool

    @classmethod
    def of(
        cls,
        site: Site,
        plain: Call | None,
        ending: Ending,
        *,
        transposed: bool = False,
        last: ir.Node | None = None,
    ) -> Convolving:
        """Return the call of a node, which makes the result of a later one if that is given."""
        names = ("strides", "dilations", "pads", "output_padding", "output_shape")
        found = {name: site.attribute(name, None) for name in names}
        geometry: dict[str, Any] = {k: tuple(v) for k, v in found.items() if v is not None}
        geometry["auto_pad"] = site.attribute("auto_pad", "NOTSET")
        group, free = site.attribute("group", 1), layouts.may_choose(last or site.node)
        return cls(site.target, plain, ending, group, geometry, transposed, free)

    def __call__(
        self, X: Array, W: Array, B: Array | None = None, Z: Array | None = None
    ) -> Array | None:
        """Return the result."""
        arguments = (X, W, B) if Z is None else (X, W, B, Z)
        one_type = same_element(X, W, B, Z) is not None
        if not one_type or X.ndim not in (3, 4, 5) or not W.size or not X.size:
            return None if self.plain is None else self.plain(*arguments)
        windows, shape = self._windows(X, W)
        pixels = max(math.prod(image[2:]) for image in (X.shape, shape))
        if (
            not math.prod(shape)
            or pixels > MAX_CHANNEL_PIXELS
            or not (Z is None or Z.shape == shape)
        ):
            return None if self.plain is None else self.plain(*arguments)
        task = ConvTask(
            self.target, X, W, B, Z, windows, shape, self.group, self.ending, self.transposed,
            self.free,
        )  # fmt: skip
        for way in (depthwise, by_cudnn, implicit):
            if (y := way(task)) is not None:
                return y
        return None if self.plain is None else self.plain(*arguments)

    def _windows(self, x: Array, w: Array) -> tuple[Windows, tuple[int, ...]]:
        if self.transposed:
            if x.ndim != w.ndim or x.shape[1] != w.shape[0] or w.shape[0] % self.group:
                raise ValueError(
                    f"expected W of shape (C, M/group, ...) with C divisible by "
                    f"group={self.group} for X of shape {x.shape}, found {w.shape}"
                )
            windows = place_transposed(x.shape[2:], w.shape[2:], **self.geometry)
            return windows, (x.shape[0], w.shape[1] * self.group, *windows.size)
        check_weights(x, w, self.group, None)
        windows = place(x.shape[2:], w.shape[2:], **self.geometry)
        return windows, (x.shape[0], w.shape[0], *windows.output)
