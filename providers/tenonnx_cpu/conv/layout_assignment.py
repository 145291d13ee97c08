"""The choice of images with channels last: those whose readers all support it.

That pays where convolutions are depthwise, or in tiles of bfloat16. Where none is, those of all
channels are as fast with channels first, and need no copy of their weights.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenonnx.graph import attribute
from tenonnx.graph.sizes import ANY, sizes_of
from tenonnx.planning.lower import is_constant
from tenonnx_cpu.buffers import F32
from tenonnx_cpu.conv.kernels import UNROLLED_WINDOWS
from tenonnx_cpu.conv.kernels.winograd_matrices import KERNEL
from tenonnx_cpu.conv.winograd import LEAST_CHANNELS, wins_over_bfloat16
from tenonnx_cpu.elementwise.elementwise import PROGRAMS
from tenonnx_cpu.jit.code.cpu import cpu
from tenonnx_cpu.kernel_selection import Site

if TYPE_CHECKING:
    import onnx_ir as ir

    from tenonnx_cpu.fuse import Scope

# Whether vectors can be loaded in part, as the last channels of an image must be.
SUITED = cpu().lanes >= 8

# Floats between places that share few sets of the cache, such as a page has.
ALIASED_FLOATS = 1024

# Elementwise nodes that are followed: what comes after so many is taken to be like the rest.
FURTHEST = 8


def better_last(value: ir.Value, scope: Scope, further: int = FURTHEST) -> bool:
    """Return whether all readers of an image take it with its channels last, and there are any."""
    uses = tuple(value.uses())
    if not SUITED or not uses or scope.escapes(value):
        return False
    if not _has_depthwise(scope) and not _narrows_any(scope):
        return False
    return all(_takes(use.node, use.idx, scope, further) for use in uses)


def reads_last(node: ir.Node, place: int) -> bool:
    """Return whether a node reads an image that has its channels last, and had better do so."""
    if not SUITED or place or node.op_type != "Conv" or node.domain:
        return False
    site = Site(node, 1)
    return site.weight(1) is not None and _is_depthwise(site) and _convolves(site)


def _narrows_any(scope: Scope) -> bool:
    found = scope.known.get("narrow")
    if found is None:
        found = {
            node: True for node in scope.nodes if node.op_type == "Conv" and scope.narrows(node)
        }
        scope.known["narrow"] = found
    return bool(found)


def _has_depthwise(scope: Scope) -> bool:
    found = scope.known.get("depthwise")
    if found is None:
        found = {node: True for node in scope.nodes if _is_depthwise(scope.site(node))}
        scope.known["depthwise"] = found
    return bool(found)


def _is_depthwise(site: Site) -> bool:
    """Return whether a convolution has a group for each channel."""
    if site.node.op_type != "Conv" or (group := site.attribute("group", 1)) == 1:
        return False
    weight = site.constant(1)
    return weight is not None and weight.shape[:2] == (group, 1)


def _takes(node: ir.Node, place: int, scope: Scope, further: int) -> bool:
    if node.domain:
        return False
    site = scope.site(node)
    if node.op_type == "Conv":
        return place == 0 and _convolves(site)
    if node.op_type == "Transpose":
        return tuple(site.attribute("perm", ())) == (0, 2, 3, 1)
    if node.op_type == "Reshape":
        return _makes_tokens(node, scope)
    if node.op_type in PROGRAMS:
        others = (value for number, value in enumerate(node.inputs) if number != place)
        if not all(map(_may_be_last, others)):
            return False
        return not further or better_last(node.outputs[0], scope, further - 1)
    if node.op_type == "ReduceMean":
        axes = site.constant(1) if len(node.inputs) > 1 else site.attribute("axes", ())
        return axes is not None and [axis % 4 for axis in axes] == [2, 3]
    return node.op_type in ("GlobalAveragePool", "Shape")


def _makes_tokens(node: ir.Node, scope: Scope) -> bool:
    """Return whether a view of an image has its places in a row, and is read channels last."""
    image, row = node.inputs[0], node.outputs[0]
    if image is None or scope.escapes(row):
        return False
    before, after = sizes_of(image), sizes_of(row)
    if len(before) != 4 or len(after) != 3 or before[:2] != after[:2]:
        return False
    if None in after[:2] or ANY in after[:2]:
        return False
    orders = [attribute(user, "perm", ()) for user, _ in row.uses() if user.op_type == "Transpose"]
    return len(orders) == len(row.uses()) and all(tuple(each) == (0, 2, 1) for each in orders)


def _may_be_last(value: ir.Value | None) -> bool:
    """Return whether what is combined with an image may lie as it does, or is no image."""
    if value is None or is_constant(value):
        return True
    maker = value.producer()
    return maker is not None and (maker.op_type in PROGRAMS or maker.op_type == "Conv")


def _convolves(site: Site) -> bool:
    """Return whether kernels for channels in lanes are the best ones for a convolution."""
    weight, group = site.constant(1), site.attribute("group", 1)
    if weight is None or weight.dtype != F32 or weight.ndim != 4:
        return False
    kernel, strides = weight.shape[2:], tuple(site.attribute("strides", (1, 1)))
    plain = tuple(site.attribute("dilations", (1, 1))) == (1, 1)
    if group == 1:
        by_tiles = kernel == (KERNEL, KERNEL) and strides == (1, 1) and plain
        if site.narrows:
            return not by_tiles or not wins_over_bfloat16(*weight.shape[:2])
        if weight.shape[1] * strides[-1] % ALIASED_FLOATS == 0:
            return False
        return not by_tiles or min(weight.shape[:2]) < min(LEAST_CHANNELS.values())
    square = kernel[0] == kernel[1] and strides[0] == strides[1] and plain
    return _is_depthwise(site) and square and (kernel[0], strides[0]) in UNROLLED_WINDOWS
