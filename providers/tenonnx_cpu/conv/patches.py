"""Convolutions whose windows lie side by side, as vision transformers begin: one product."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tenonnx_cpu.fuse import PATTERN, Fused, Scope, fusion
from tenonnx_cpu.matmul.product import F32, fits, product, request

if TYPE_CHECKING:
    import onnx_ir as ir

    from tenonnx_cpu.kernel_selection import NDArray, Site

RUN = 8
"""Elements of a row of a window that are worth copying one by one."""

TURNED = ("Flatten", "Reshape", "Shape", "Transpose")
"""Operators that take channels in any place."""


@fusion("Conv", priority=PATTERN)
def fuse_patches(node: ir.Node, scope: Scope) -> Fused | None:
    """Takes a convolution of such windows that is laid out anew; channels then are adjacent."""
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
    matrix, threads = weight.reshape(len(weight), -1).T, scope.threads
    inputs = tuple(node.inputs)
    plain = scope.fallback((node,), inputs, output)

    def call(x: Any, *constants: Any) -> Any:
        made = None
        if x.dtype == F32 and x.ndim == 4 and x.shape[1] == weight.shape[1]:
            made = product(patches(x, *weight.shape[2:]), matrix, threads, bias)
        return plain(x, *constants) if made is None else made.transpose(0, 3, 1, 2)

    return Fused((node,), inputs, (output,), call)


def _side_by_side(site: Site, weight: NDArray) -> bool:
    kernel = list(weight.shape[2:])
    return (
        list(site.attribute("strides", ())) == kernel
        and list(site.attribute("kernel_shape", kernel)) == kernel
        and kernel[1] >= RUN
        and site.attribute("group", 1) == 1
        and site.attribute("auto_pad", "NOTSET") in ("NOTSET", "VALID")
        and not any(site.attribute("pads", ()))
        and set(site.attribute("dilations", (1, 1))) == {1}
    )


def patches(x: NDArray, high: int, wide: int) -> NDArray:
    """Returns windows of an image as rows, ``(batch, down, across, channels * high * wide)``."""
    batch, channels, height, width = x.shape
    down, across = height // high, width // wide
    whole = x[:, :, : down * high, : across * wide]
    apart = whole.reshape(batch, channels, down, high, across, wide)
    rows = np.ascontiguousarray(apart.transpose(0, 2, 4, 1, 3, 5))
    return rows.reshape(batch, down, across, channels * high * wide)
