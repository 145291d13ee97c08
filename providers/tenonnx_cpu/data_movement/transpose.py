"""Transpose into adjacent elements, where what reads the result would copy it to have them so."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from tenonnx.by_name import cacheable
from tenonnx.graph.sizes import ANY, rank_of, sizes_of
from tenonnx.graph.traits import VIEWS
from tenonnx.planning.lower import is_constant
from tenonnx_array.shape import depth_in_space, space_in_depth
from tenonnx_cpu.capture.capturable import Capturable, dynamic
from tenonnx_cpu.capture.launch import Launch
from tenonnx_cpu.data_movement.copies import COPY
from tenonnx_cpu.data_movement.ordered_copies import TRANSPOSE, ordered
from tenonnx_cpu.elementwise.typed import APPLY
from tenonnx_cpu.kernel_selection import Call, NDArray, Site, specialize

if TYPE_CHECKING:
    import onnx_ir as ir

# Elements from which on a copy costs less than readers that take elements where they are, in
# pieces.
MIN_COPIED_ELEMENTS = 1 << 10

# Elements that an axis may span; no more fit the memory.
MAX_SPANNED_ELEMENTS = 1 << 40

# Operators that read elements wherever they are, or make views of them.
STRIDED = frozenset(
    {
        "Attention", "Einsum", "Gather", "Gemm", "MatMul", "MultiHeadAttention", "Shape", "Size",
        "Slice", "Split", "Transpose",
    }
)  # fmt: skip

# Operators that, where there is little to copy, had better have a view.
IN_PIECES = STRIDED | VIEWS | {"Concat"}

# Operators whose results are views with elements that may lie apart.
STRIDED_VIEWS = frozenset({"Expand", "Slice", "Split", "Transpose"})

# Those of them whose results' readers copy a part each, if they copy.
READ_IN_PARTS = frozenset({"Slice", "Split"})


# Bytes of a view of an input that a kernel copies as it leaves the graph; of more, the session
# finds out whether there is room.
MAX_COPIED_VIEW_BYTES = 1 << 26


@specialize("Transpose")
def specialize_transpose(site: Site, plain: Call) -> Call | None:
    """Return a view, or copies on a kernel if some reader would on numpy."""
    result = site.node.outputs[0]
    copies, leaves = _is_copied(result, _lain(site)), leaves_graph(site)
    if not copies and not leaves:
        return dynamic(functools.partial(_as_view, plain))
    in_pieces = any(node.op_type in IN_PIECES for node, _ in result.uses())
    least = MIN_COPIED_ELEMENTS if in_pieces and not leaves else 1
    return in_order(site, plain, least)


def in_order(site: Site, plain: Call, least: int = 1) -> Call:
    """Return what copies the view that ``plain`` returns, if it has so many elements."""
    request_copies(site)
    return Capturable(functools.partial(_in_new_order, least, site.threads, plain))


@specialize("DepthToSpace", "SpaceToDepth")
def specialize_blocks(site: Site, plain: Call) -> Call:
    """Copy elements from where a view of blocks has them."""
    view = depth_in_space if site.node.op_type == "DepthToSpace" else space_in_depth
    size, mode = site.attribute("blocksize", 0), site.attribute("mode", "DCR")
    request_copies(site)
    return Capturable(functools.partial(_blocks, view, size, mode, site.threads, plain))


@cacheable
def _blocks(
    view: Callable[..., Any], size: int, mode: str, threads: int, plain: Call, x: NDArray
) -> Any:
    try:
        seen, shape = view(x, size, mode)
    except ValueError:
        return plain(x)  # which says what is wrong
    made = ordered(seen, threads)
    return plain(x) if made is None else made._replace(result=made.result.reshape(shape))


def request_copies(site: Site) -> None:
    """Have the kernels of ``ordered`` loaded that a node may need."""
    TRANSPOSE.request()
    COPY.request()
    if site.node.op_type == "Expand":
        APPLY.request()


def leaves_graph(site: Site) -> bool:
    """Return whether a node's result leaves the graph as a view of an input: then it is copied."""
    node, value = site.node, site.node.inputs[0]
    # Split's results are a tuple, also if it has one.
    if node.op_type == "Split" or not node.outputs[0].is_graph_output():
        return False
    while value is not None and (maker := value.producer()) is not None:
        if maker.op_type not in VIEWS | STRIDED_VIEWS:
            return False
        value = maker.inputs[0]
    return value is not None and not is_constant(value)


@cacheable
def _as_view(plain: Call, x: NDArray) -> Launch:
    return Launch(None, (), plain(x))


@cacheable
def _in_new_order(least: int, threads: int, plain: Call, x: NDArray) -> Launch:
    """Copy elements in their new order, if there are at least so many."""
    y = plain(x)
    if y.size >= least and not y.flags.c_contiguous:
        return ordered(y, threads) or Launch(None, (), y)
    return Launch(None, (), y)


def _lain(site: Site) -> NDArray | None:
    """Return an array that lies as the result of a Transpose does, if its shape is known.

    It has strides alone, and no memory for elements.
    """
    x, order = site.node.inputs[0], site.attribute("perm", None)
    sizes = _known(x)
    if order is None or sizes is None or len(sizes) != len(order) or not math.prod(sizes):
        return None
    steps = [math.prod(sizes[axis + 1 :]) for axis in range(len(sizes))]
    if sizes[0] * steps[0] > MAX_SPANNED_ELEMENTS:
        return None
    return as_strided(np.zeros(1, np.uint8), sizes, steps).transpose(order)


def _known(value: ir.Value | None) -> tuple[int, ...] | None:
    """Return the shape of a value, if it is known to the last size."""
    sizes = () if value is None else sizes_of(value)
    known = tuple(size for size in sizes if size is not None)
    return known if known and len(known) == len(sizes) and ANY not in known else None


def _is_copied(value: ir.Value, lain: NDArray | None) -> bool:
    """Return whether a node needs a value's elements side by side, now or after a view of them.

    Args:
        value: The result of a Transpose, or a view of it.
        lain: An array that lies as it does, if that is known.
    """
    for node, place in value.uses():
        if node.op_type == "Conv" and _convolves(node, place, lain):
            continue
        is_part = node.op_type in READ_IN_PARTS or _picks_one(node)
        if is_part and any(_is_copied(part, None) for part in node.outputs):
            return True
        if node.op_type not in VIEWS | STRIDED:
            return True
        if node.op_type in VIEWS:
            view, own = _viewed(lain, node.outputs[0])
            if own or (view is None and _joins(value, node.outputs[0])):
                return True
            if _is_copied(node.outputs[0], view):
                return True
    return False


def _convolves(node: ir.Node, place: int, lain: NDArray | None) -> bool:
    """Return whether a convolution reads an image as it lies: with its channels last."""
    from tenonnx_cpu.conv.channels_last import is_last
    from tenonnx_cpu.conv.layout_assignment import reads_last

    return lain is not None and is_last(lain) and reads_last(node, place)


def _picks_one(node: ir.Node) -> bool:
    """Return whether a node's result is a view of what it picks: all at one constant place."""
    if node.op_type != "Gather" or node.domain:
        return False
    place = node.inputs[1]
    return place is not None and is_constant(place) and rank_of(place) == 0


def _viewed(lain: NDArray | None, view: ir.Value) -> tuple[NDArray | None, bool]:
    """Return an array that lies as a view of one does, if that is known, and if it is a copy."""
    sizes = _known(view)
    if lain is None or sizes is None or math.prod(sizes) != lain.size:
        return None, False
    try:
        return lain.reshape(sizes, copy=False), False
    except ValueError:
        return None, True


def _joins(value: ir.Value, view: ir.Value) -> bool:
    """Return whether a view has less axes, as far as is known, so that it most likely is a copy."""
    if value.shape is None or view.shape is None or view.producer() is None:
        return False
    return len(view.shape) < len(value.shape) and 1 not in value.shape
