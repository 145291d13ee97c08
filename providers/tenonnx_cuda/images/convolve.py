"""Convolution: by cuDNN where it is, or by kernels of the provider's own."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np

from tenonnx.operators import Array
from tenonnx.provider import HOST
from tenonnx_array.conv import check_weights, convolve
from tenonnx_array.windows import Windows, place, place_transposed
from tenonnx_cuda.chosen import Call, Instead, Site, choose, same_element
from tenonnx_cuda.cudnn.operations import Tensor
from tenonnx_cuda.images import implicit, layouts
from tenonnx_cuda.images.convolution_graph import (
    BIAS,
    LITTLE_WORKSPACE,
    SUM,
    WORKSPACE,
    Convolution,
    W,
    X,
    Y,
)
from tenonnx_cuda.noting import start
from tenonnx_cuda.sources import ELEMENTS, LARGEST_GRID, THREADS, blocks, is_aligned, pointer

ACTIVATIONS: Final[dict[str, tuple[Any, ...]]] = {
    "": (0,),
    "Relu": (1,),
    "LeakyRelu": (2, 0.01),
    "Clip": (3,),
    "HardSigmoid": (4, 0.2, 0.5),
    "HardSwish": (5,),
    "Sigmoid": (6,),
    "Tanh": (7,),
}
"""What ``ending.cuh`` calls activations, and the defaults of their parameters."""

RELU: Final = 1

VECTOR: Final = 4
PLACES: Final = 4
"""Maps that a thread of ``depthwise.cu`` has at once, and places one after another."""

LARGEST_WINDOW: Final = 64
"""Of its windows, so that their weights fit in a block's shared memory."""


@dataclass(frozen=True)
class Ending:
    """What becomes of a convolution's results.

    Attributes:
        activation: Its number.
        alpha: Its parameters.
        beta: Likewise.
    """

    activation: int = 0
    alpha: float = 0.0
    beta: float = 0.0


class Given(NamedTuple):
    """Image, weights, bias and what is added."""

    x: Array
    w: Array
    b: Array | None
    z: Array | None


@choose("Conv")
def conv(site: Site, plain: Call) -> Call | Instead:
    """Conv, with a bias."""
    return instead(Convolving(site, plain, Ending()))


@choose("FusedConv", domain="com.microsoft")
def fused_conv(site: Site, plain: Call) -> Call | Instead | None:
    """FusedConv: with a sum and an activation."""
    name = site.attribute("activation", "")
    if name not in ACTIVATIONS:
        return None
    activation, *defaults = ACTIVATIONS[name]
    given = [*site.attribute("activation_params", ()), *[None] * 2]
    numbers = [d if g is None else g for g, d in zip(given, (*defaults, 0.0, 0.0), strict=False)]
    return instead(Convolving(site, plain, Ending(activation, *numbers[:2])))


@choose("ConvTranspose")
def conv_transpose(site: Site, plain: Call) -> Call | Instead | None:
    """ConvTranspose, where cuDNN is."""
    if site.platform.cudnn is None:
        return None
    return instead(Convolving(site, plain, Ending(), transposed=True))


def instead(call: Convolving) -> Call | Instead:
    """Lets a call read its constant weights as cuDNN wants them, if they lie otherwise."""
    site = call.site
    weight = site.weight(1)
    if weight is None or len(weight.shape) < 3 or not call.on_tensor_cores(weight.dtype.numpy()):
        return call
    if math.prod(weight.shape[2:]) == 1 or weight.shape[1] == 1:
        return call  # that is the same bytes
    turned = weight.derive(
        "channels-last:1", lambda: np.ascontiguousarray(np.moveaxis(weight.on(HOST), 1, -1))
    )

    def run(x: Array, w: Array, *more: Array | None) -> Array:
        return call(x, layouts.first(w), *more)

    return Instead(run, {1: turned})


class Convolving:
    """A call of X, W, B and what is added.

    Args:
        site: The node.
        plain: Takes what this does not.
        ending: What becomes of the results.
        transposed: Goes the other way.
    """

    def __init__(self, site: Site, plain: Call, ending: Ending, *, transposed: bool = False):
        self.site, self._plain, self._ending = site, plain, ending
        self._group = site.attribute("group", 1)
        self._transposed = transposed
        names = ("strides", "dilations", "pads", "output_padding", "output_shape")
        found = {name: site.attribute(name, None) for name in names}
        self._geometry: dict[str, Any] = {k: tuple(v) for k, v in found.items() if v is not None}
        self._geometry["auto_pad"] = site.attribute("auto_pad", "NOTSET")
        self._free = layouts.may_choose(site.node)

    def on_tensor_cores(self, dtype: np.dtype[Any]) -> bool:
        """Says whether cuDNN multiplies such elements on tensor cores."""
        site = self.site
        able = site.platform.cudnn is not None and site.has_tensor_cores
        return able and dtype in ELEMENTS and (dtype != np.float32 or site.tf32)

    def __call__(self, X: Array, W: Array, B: Array | None = None, Z: Array | None = None) -> Array:
        """Returns the result."""
        given = Given(X, W, B, Z)
        element = same_element(X, W, B, Z)
        arguments = given[: 3 if Z is None else 4]
        if element is None or X.ndim not in (3, 4, 5) or not W.size or not X.size:
            return self._plain(*arguments)
        windows, shape = self._windows(X, W)
        if not math.prod(shape) or not (Z is None or Z.shape == shape):
            return self._plain(*arguments)
        for way in (self._depthwise, self._by_cudnn, self._implicit):
            y = way(given, windows, shape)
            if y is not None:
                return y
        return self._plain(*arguments)

    def _windows(self, x: Array, w: Array) -> tuple[Windows, tuple[int, ...]]:
        if self._transposed:
            if x.ndim != w.ndim or x.shape[1] != w.shape[0] or w.shape[0] % self._group:
                raise ValueError(
                    f"expected W of shape (C, M/group, ...) with C divisible by "
                    f"group={self._group} for X of shape {x.shape}, found {w.shape}"
                )
            windows = place_transposed(x.shape[2:], w.shape[2:], **self._geometry)
            return windows, (x.shape[0], w.shape[1] * self._group, *windows.size)
        check_weights(x, w, self._group, None)
        windows = place(x.shape[2:], w.shape[2:], **self._geometry)
        return windows, (x.shape[0], w.shape[0], *windows.output)

    def _by_cudnn(self, given: Given, windows: Windows, shape: tuple[int, ...]) -> Array | None:
        """Returns what cuDNN computes, and a kernel for what it leaves; ``None`` if it cannot."""
        site, xp = self.site, self.site.xp
        if site.platform.cudnn is None:
            return None
        x, w, b, z = given
        last = self.on_tensor_cores(x.dtype)
        if layouts.lies(x) is None or not (last or x.flags.c_contiguous):
            x = layouts.laid(xp, x, at_end=last)
        w = w if layouts.lies(w) is not None else xp.ascontiguousarray(w)
        last = last and self._free
        z = None if z is None else layouts.laid(xp, z, at_end=last)
        b = None if b is None else xp.ascontiguousarray(b)
        what = Convolution(
            x.dtype, Tensor.of(x), Tensor.of(w), Tensor.laid(shape, last=last), windows.strides,
            windows.dilations, windows.begins, ends_of(windows), self._transposed, site.tf32,
            None if z is None else Tensor.of(z), b is not None, self._ending.activation == RELU,
            site.options.cudnn_conv_algo_search == "EXHAUSTIVE",
            WORKSPACE if site.options.cudnn_conv_use_max_workspace else LITTLE_WORKSPACE,
        )  # fmt: skip
        made = Given(*(a if a is None or is_aligned(a) else a.copy() for a in (x, w, b, z)))
        return self._started(what, last, made)

    def _started(self, what: Convolution, last: bool, given: Given) -> Array | None:
        """Returns what cuDNN computes of arrays that lie as it is told."""
        site, cudnn = self.site, self.site.platform.cudnn
        assert cudnn is not None, "there is something for it to do"
        x, w, b, z = given
        y = layouts.empty(site.xp, what.y.shape, what.dtype, at_end=last)
        arrays = {X: x, W: w, Y: y, BIAS: b, SUM: z}
        addresses = {name: a.data.ptr for name, a in arrays.items() if a is not None}
        if (plan := cudnn.plan(what, addresses)) is None:
            return None
        size = plan.workspace
        workspace = site.xp.empty((size,), np.uint8) if size else None
        tensors = (arrays[name] for name in plan.names)
        start(functools.partial(cudnn.start, plan), *tensors, workspace)
        done = what.endings[: plan.form]
        b, z = (None if name in done else a for name, a in ((BIAS, b), (SUM, z)))
        ending = Ending() if Y in done else self._ending
        if b is not None or z is not None or ending.activation:
            finish(site, y, y, b, z, ending)
        return y

    def _depthwise(self, given: Given, windows: Windows, shape: tuple[int, ...]) -> Array | None:
        """Returns what a kernel computes where each channel is by itself."""
        site, xp = self.site, self.site.xp
        x, w, b, z = given
        alone = w.shape[1] == 1 and self._group == x.shape[1]
        small = math.prod(windows.kernel) <= LARGEST_WINDOW and max(shape[:2]) <= LARGEST_GRID
        if self._transposed or not alone or not small or x.ndim == 5:
            return None
        last = self._free and layouts.lies(x) is True
        y = layouts.empty(xp, shape, x.dtype, at_end=last)
        x = layouts.laid(xp, x, at_end=last)
        z = None if z is None else layouts.laid(xp, z, at_end=last)
        w, b = (None if a is None else xp.ascontiguousarray(a) for a in (w, b))
        times, maps = shape[1] // x.shape[1], shape[1]
        even = times == 1 and maps % VECTOR == 0 and is_aligned(x, *(() if z is None else (z,)))
        vector = VECTOR if last and even else 1
        height, width = implicit.window_of(windows)
        launch = site.kernel(
            "depthwise", "depthwise", T=ELEMENTS[x.dtype], KH=height, KW=width, TIMES=times,
            LAST=int(last), VECTOR=vector, ACTIVATION=self._ending.activation,
        )  # fmt: skip
        chunk, places = (32 * vector, 8 * PLACES) if last else (1, THREADS * PLACES)
        grid = (-(-math.prod(shape[2:]) // places), -(-maps // chunk), shape[0])
        factors = (np.float32(self._ending.alpha), np.float32(self._ending.beta))
        arrays = (x, w, pointer(b), pointer(z), y, np.int32(maps))
        launch(grid, (THREADS,), (*arrays, *implicit.numbers_of(windows), *factors))
        return y

    def _implicit(self, given: Given, windows: Windows, shape: tuple[int, ...]) -> Array | None:
        """Returns an implicit product; of a 1x1 kernel cuBLAS's, which needs no windows for it."""
        many = len(given.x) * self._group > LARGEST_GRID
        if self._transposed or given.x.ndim == 5 or many:
            return None
        xp, dtype = self.site.xp, given.x.dtype
        x, w, b, z = (None if a is None else xp.ascontiguousarray(a) for a in given)
        if math.prod(windows.kernel) == 1:
            y = sums = convolve(xp, x, w, windows, self._group)
        else:
            sums = implicit.convolve(self.site, ELEMENTS[dtype], x, w, windows, self._group)
            y = xp.empty(shape, dtype)
        if sums is not y or b is not None or z is not None or self._ending.activation:
            finish(self.site, sums, y, b, z, self._ending)
        return y


def finish(
    site: Site, sums: Array, y: Array, b: Array | None, z: Array | None, ending: Ending
) -> None:
    """Writes the end of a convolution to y.

    Args:
        site: The node.
        sums: float32 [slices, ...], or y itself.
        y: The result.
        b: A number for each map.
        z: What is added; it lies as y does.
        ending: The activation.
    """
    element = ELEMENTS[y.dtype]
    slices, kind = (1, element) if sums is y else (sums.shape[0], "float")
    launch = site.kernel("ending", "finish", T=element, S=kind, ACTIVATION=ending.activation)
    inner = math.prod(y.shape[2:]) if y.flags.c_contiguous else 1
    counts = (np.int32(slices), np.int64(y.size), np.int32(y.shape[1]), np.int32(inner))
    factors = (np.float32(ending.alpha), np.float32(ending.beta))
    launch(blocks(y.size), (THREADS,), (sums, pointer(b), pointer(z), y, *counts, *factors))


def ends_of(windows: Windows) -> tuple[int, ...]:
    """Returns padding after each axis for the same windows: as before it, where that can be.

    cuDNN has more engines for padding that is the same on both sides.
    """
    found = []
    for axis, begin in enumerate(windows.begins):
        stride, reach = windows.strides[axis], (windows.kernel[axis] - 1) * windows.dilations[axis]
        least = (windows.output[axis] - 1) * stride + reach + 1 - windows.size[axis] - begin
        found.append(begin if least <= begin < least + stride else max(least, 0))
    return tuple(found)
