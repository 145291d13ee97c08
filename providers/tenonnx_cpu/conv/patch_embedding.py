"""Convolutions whose windows lie side by side, as vision transformers begin: one product."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tenonnx.by_name import cacheable
from tenonnx_cpu.capture.launch import done
from tenonnx_cpu.fuse import PATTERN, Fused, Scope, fusion
from tenonnx_cpu.matmul.bfloat16 import Panels, panels_of, tile_launch
from tenonnx_cpu.matmul.product import F32, fits, product, request

if TYPE_CHECKING:
    import onnx_ir as ir

    from tenonnx_cpu.kernel_selection import Call, NDArray, Site

# Elements of a row of a window that are worth copying one by one.
MIN_COPIED_RUN = 8

# Operators that take channels in any place.
TURNED = ("Flatten", "Reshape", "Shape", "Transpose")


@fusion("Conv", priority=PATTERN)
def fuse_patches(node: ir.Node, scope: Scope) -> Fused | None:
    """Take a convolution of such windows that is laid out anew; channels then are adjacent."""
    site = scope.site(node)
    weight = site.constant(1)
    if weight is None or weight.dtype != F32 or weight.ndim != 4 or not fits(weight):
        return None
    output = node.outputs[0]
    turned = all(use.node.op_type in TURNED for use in output.uses())
    if output.is_graph_output() or not turned or not _side_by_side(site, weight):
        return None
    bias = None
    if len(node.inputs) > 2 and node.inputs[2] is not None:
        bias = site.constant(2)
        if bias is None or bias.shape != weight.shape[:1] or not fits(bias):
            return None
    request("f32")
    inputs = tuple(node.inputs)
    plain = scope.fallback((node,), inputs, output)
    panels = None
    if site.narrows:
        shape = len(weight), -1
        panels = panels_of(site, 1, lambda w: w.reshape(shape).T, "patches")
    call = PatchesCall(weight, bias, scope.threads, plain, panels)
    return Fused((node,), inputs, (output,), call)


@cacheable
@dataclass(frozen=True, eq=False)
class PatchesCall:
    """Multiplies the windows of images by weights.

    Attributes:
        weight: The weights, (M, C, height, width).
        bias: One number for each of M, if there is one.
        threads: How many to use at most.
        plain: Computes the same from the same arguments.
        panels: The weights as a matrix of bfloat16, if that is precise enough.
    """

    weight: NDArray
    bias: NDArray | None
    threads: int
    plain: Call
    panels: Panels | None = None

    def __call__(self, x: NDArray, *constants: Any) -> Any:
        """Return the result, whose channels are adjacent."""
        weight, made = self.weight, None
        if x.dtype == F32 and x.ndim == 4 and x.shape[1] == weight.shape[1]:
            rows, rest = patches(x, *weight.shape[2:]), (self.threads, self.bias)
            launch = None if self.panels is None else tile_launch(rows, self.panels, *rest)
            if launch is not None:
                made = done(launch)
            else:
                made = product(rows, weight.reshape(len(weight), -1).T, *rest)
        return self.plain(x, *constants) if made is None else made.transpose(0, 3, 1, 2)


def _side_by_side(site: Site, weight: NDArray) -> bool:
    kernel = list(weight.shape[2:])
    return (
        list(site.attribute("strides", ())) == kernel
        and list(site.attribute("kernel_shape", kernel)) == kernel
        and kernel[1] >= MIN_COPIED_RUN
        and site.attribute("group", 1) == 1
        and site.attribute("auto_pad", "NOTSET") in ("NOTSET", "VALID")
        and not any(site.attribute("pads", ()))
        and set(site.attribute("dilations", (1, 1))) == {1}
    )


def patches(x: NDArray, high: int, wide: int) -> NDArray:
    """Return windows of an image as rows, ``(batch, down, across, channels * high * wide)``."""
    batch, channels, height, width = x.shape
    down, across = height // high, width // wide
    whole = x[:, :, : down * high, : across * wide]
    apart = whole.reshape(batch, channels, down, high, across, wide)
    rows = np.ascontiguousarray(apart.transpose(0, 2, 4, 1, 3, 5))
    return rows.reshape(batch, down, across, channels * high * wide)
