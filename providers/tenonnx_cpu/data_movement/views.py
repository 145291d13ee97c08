"""Operators whose results are views: what numpy finds out about strides, captured."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tenonnx.by_name import cacheable
from tenonnx_cpu.buffers import TRACED, contiguous
from tenonnx_cpu.capture.capturable import Capturable, dynamic
from tenonnx_cpu.capture.launch import Launch, ahead, fix, is_fixed
from tenonnx_cpu.data_movement.ordered_copies import ordered
from tenonnx_cpu.data_movement.transpose import (
    MAX_COPIED_VIEW_BYTES,
    leaves_graph,
    request_copies,
)
from tenonnx_cpu.fuse import Fused, Scope, fusion
from tenonnx_cpu.kernel_selection import Call, NDArray, Site, specialize

if TYPE_CHECKING:
    import onnx_ir as ir


# Elements of an expanded constant that is kept.
MAX_EXPANDED_ELEMENTS = 4096


@specialize("Expand", "Flatten", "Reshape", "Slice", "Split", "Squeeze", "Unsqueeze")
def specialize_view(site: Site, plain: Call) -> Call:
    """Take what changes shapes as constants or shapes say; what must be copied, a kernel copies.

    Numbers other than float32, and what lies in too many pieces, numpy copies.
    """
    inputs = site.node.inputs
    varying = [
        n for n in range(1, len(inputs)) if inputs[n] is not None and site.constant(n) is None
    ]

    expands = site.node.op_type == "Expand" and site.constant(0) is not None
    call = ViewCall(tuple(varying), _added(site), expands, plain)
    if expands:
        return Capturable(call)
    leaving = [n for n, value in enumerate(site.node.outputs) if value.is_graph_output()]
    if site.node.op_type == "Split" and leaving:
        request_copies(site)
        return Capturable(functools.partial(_leaving_parts, call, tuple(leaving), site.threads))
    if leaves_graph(site):
        request_copies(site)
        return Capturable(functools.partial(_leaving, call, site.threads))
    return dynamic(call)


@cacheable
@dataclass(frozen=True, eq=False)
class ViewCall:
    """Changes a shape.

    Attributes:
        varying: Inputs that say how and are no constants.
        added: Axes that a numpy scalar gets; 0 where numpy is to find out.
        expands: Whether a constant is expanded.
        plain: Does it.
    """

    varying: tuple[int, ...]
    added: int
    expands: bool
    plain: Call

    def __call__(self, *given: Any) -> Any:
        """Return a launch of nothing, or the result if inputs other than shapes say how."""
        if self.added and isinstance(given[0], np.generic):
            return np.array(given[0], ndmin=self.added)
        x, result = given[0], self.plain(*given)
        for n in self.varying:
            if not is_fixed(given[n]):
                return result
        parts = result if isinstance(result, tuple | list) else (result,)
        if not x.flags.c_contiguous and TRACED.get() and not _are_views(x, parts):
            result = self.plain(contiguous(x), *given[1:])  # axes are joined that lie apart
        if self.expands and result.size <= MAX_EXPANDED_ELEMENTS:  # what shapes alone decide
            result = fix(np.ascontiguousarray(result))
        return Launch(None, (), result)


def _are_views(x: NDArray, parts: Iterable[NDArray]) -> bool:
    return all(np.may_share_memory(x, part) or not part.size for part in parts)


@cacheable
def _leaving(call: ViewCall, threads: int, *given: Any) -> Any:
    """Change a shape, and have a kernel copy what leaves the graph."""
    made = call(*given)
    if type(made) is not Launch or made.result.flags.c_contiguous:
        return made
    x = made.result
    return (ordered(x, threads) if x.nbytes <= MAX_COPIED_VIEW_BYTES else None) or made


@cacheable
def _leaving_parts(call: ViewCall, leaving: tuple[int, ...], threads: int, *given: Any) -> Any:
    """Split an array, and have a kernel copy the parts that leave the graph."""
    made = call(*given)
    if type(made) is not Launch:
        return made
    parts, copies = list(made.result), []
    for n in leaving:
        part = parts[n]
        lies_apart = not part.flags.c_contiguous and part.nbytes <= MAX_COPIED_VIEW_BYTES
        if lies_apart and (copy := ordered(part, threads)) is not None:
            copies.append(copy)
            parts[n] = copy.result
    for copy in copies[:-1]:
        ahead(copy)
    return copies[-1]._replace(result=tuple(parts)) if copies else made


def _added(site: Site) -> int:
    """Return how many axes an Unsqueeze gives a numpy scalar; 0 where numpy is to find out."""
    given = site.constant(1) if len(site.node.inputs) > 1 else site.attribute("axes", ())
    axes = [] if given is None else np.ravel(given).tolist()
    count = len(axes)
    whole = {axis % count for axis in axes if -count <= axis < count} == set(range(count))
    return count if whole and site.node.op_type == "Unsqueeze" else 0


@fusion("SplitToSequence")
def fuse_split(node: ir.Node, scope: Scope) -> Fused | None:
    """Take a sequence of pieces from which some are picked by constant places."""
    sequence, (x, *sizes) = node.outputs[0], node.inputs
    if scope.escapes(sequence) or sequence.is_graph_output():
        return None
    readers = [use.node for use in sequence.uses()]
    if not readers or any(each.op_type != "SequenceAt" or not scope.has(each) for each in readers):
        return None
    places = [scope.site(each).scalar(1) for each in readers]
    if any(place is None for place in places):
        return None
    wanted = tuple(int(place.item()) for place in places if place is not None)
    constant = not sizes or scope.site(node).constant(1) is not None
    call = functools.partial(_picked, wanted, constant, scope.plain(node).call)
    outputs = tuple(each.outputs[0] for each in readers)
    return Fused((node, *readers), (x, *sizes), outputs, Capturable(call))


@cacheable
def _picked(wanted: tuple[int, ...], constant: bool, plain: Call, *given: Any) -> Any:
    """Split an array, and return the wanted pieces."""
    pieces = plain(*given)
    for place in wanted:
        if not -len(pieces) <= place < len(pieces):
            raise ValueError(f"there are {len(pieces)} pieces, and none at {place}")
    found = tuple(pieces[place] for place in wanted)
    result = found if len(found) > 1 else found[0]
    return Launch(None, (), result) if constant or is_fixed(given[1]) else result
