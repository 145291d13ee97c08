"""A sum and its normalisation as one kernel, which writes the sum only if others read it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tenonnx.operators import Array
from tenonnx.planning.lower import is_constant
from tenonnx.provider import Device, Step
from tenonnx_cuda.chosen import Site
from tenonnx_cuda.graphs.grouping import Group
from tenonnx_cuda.graphs.program import Program
from tenonnx_cuda.norms.rows import FLOAT32, normalised
from tenonnx_cuda.platform import Platform

if TYPE_CHECKING:
    import onnx_ir as ir

NORMS: Final = ("LayerNormalization", "RMSNormalization")


@dataclass(frozen=True)
class Residual:
    """An Add and the normalisation of what it makes.

    Attributes:
        add: The one.
        norm: The other, whose scale and bias are constants.
        total: Whether others read the sum.
    """

    add: ir.Node
    norm: ir.Node
    total: bool


def residuals(
    nodes: Sequence[ir.Node], escaping: frozenset[ir.Value], is_free: Callable[[ir.Node], bool]
) -> Iterator[Residual]:
    """Yields what is one kernel; no Add is in two of them.

    Args:
        nodes: In an order in which they can run.
        escaping: Values that something outside the nodes reads.
        is_free: Whether a node may be computed otherwise than by the kernel it has.
    """
    inside = set(nodes)
    taken: set[ir.Node] = set()
    for norm in nodes:
        if norm.domain != "" or norm.op_type not in NORMS or not is_free(norm):
            continue
        add = None if norm.inputs[0] is None else norm.inputs[0].producer()
        if add is None or (add.domain, add.op_type) != ("", "Add") or add not in inside - taken:
            continue
        simple = all(v is not None and is_constant(v) for v in norm.inputs[1:])
        others = any(v.uses() or v.is_graph_output() for v in norm.outputs[1:])
        by_default = _attribute(norm, "axis", -1) == -1
        by_default = by_default and _attribute(norm, "stash_type", FLOAT32) == FLOAT32
        if simple and by_default and not others and is_free(add) and len(set(add.inputs)) == 2:
            taken.add(add)
            read = len(add.outputs[0].uses()) > 1 or add.outputs[0] in escaping
            yield Residual(add, norm, read)


def residual_step(
    residual: Residual, steps: Sequence[Step], platform: Platform, device: Device
) -> Step:
    """Returns both as one step, which can stand where the Add did."""
    add, norm = residual.add, residual.norm
    site, is_rms = Site(norm, platform), norm.op_type == "RMSNormalization"
    how = {"epsilon": _attribute(norm, "epsilon", 1e-5), "rms": is_rms, "total": residual.total}
    outputs = (*(add.outputs if residual.total else ()), norm.outputs[0])
    inputs = (*add.inputs, *norm.inputs[1:])

    @functools.cache
    def program() -> Program:
        group = Group()
        for step in steps:
            group.add(step)
        return Program(group, outputs)

    def call(*arrays: Array) -> tuple[Any, ...]:
        x, y, scale, bias = (*arrays, None)[:4]
        if x.ndim < y.ndim:
            x, y = y, x
        skip, row = (y, None) if y.shape == x.shape else (None, y)
        fits = scale.shape == x.shape[-1:] and (row is None or row.shape == scale.shape)
        if fits:
            found = normalised(site, x, scale, bias, axis=x.ndim - 1, skip=skip, extra=row, **how)
            if found is not None:
                normal, _, _, total = found
                return (total, normal) if residual.total else (normal,)
        values: dict[Any, Array] = dict(zip(inputs, arrays, strict=True))
        rest = program()
        return rest(*(values[value] for value, _ in rest.inputs))

    return Step(call, inputs, outputs, (add, norm), multiple=True, device=device)


def _attribute(node: ir.Node, name: str, default: Any) -> Any:
    attribute = node.attributes.get(name)
    return default if attribute is None else attribute.value
