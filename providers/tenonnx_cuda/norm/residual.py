"""A sum and its normalization as one kernel, which writes the sum only if others read it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tenonnx.operators import Array
from tenonnx.planning.lower import is_constant
from tenonnx_array.residual_norm import RESIDUAL_NORMS, find_sum
from tenonnx_cuda.fuse import RESIDUAL, Fused, Scope, fusion
from tenonnx_cuda.kernel_selection import Site, Target
from tenonnx_cuda.norm.rows import normalized

if TYPE_CHECKING:
    import onnx_ir as ir


@fusion(*RESIDUAL_NORMS, priority=RESIDUAL)
def fuse_residual(norm: ir.Node, scope: Scope) -> Fused | None:
    """Take a normalization by constants, and the Add before it."""
    add = find_sum(norm, scope)
    simple = all(v is not None and is_constant(v) for v in norm.inputs[1:])
    if add is None or not simple or len(set(add.inputs)) != 2:
        return None
    read = len(add.outputs[0].uses()) > 1 or scope.escapes(add.outputs[0])
    inputs = tuple(value for value in (*add.inputs, *norm.inputs[1:]) if value is not None)
    outputs = (*(add.outputs if read else ()), norm.outputs[0])
    return Fused((add, norm), inputs, outputs, residual_call(scope.site(norm), total=read))


def residual_call(site: Site, *, total: bool) -> Callable[..., Any]:
    """Return what adds and normalizes; ``None`` where the kernel does not fit.

    Args:
        site: The normalization.
        total: Return the sum, too, before what is made of it.
    """
    epsilon, rms = site.attribute("epsilon", 1e-5), site.node.op_type == RESIDUAL_NORMS[1]
    axis = site.attribute("axis", -1)
    return functools.partial(_of_sum, site.target, axis, epsilon, rms, total)


def _of_sum(
    target: Target,
    given: int,
    epsilon: float,
    rms: bool,
    total: bool,
    x: Array,
    y: Array,
    scale: Array,
    bias: Array | None = None,
) -> Any:
    if x.ndim < y.ndim:
        x, y = y, x
    skip, row = (y, None) if y.shape == x.shape else (None, y)
    axis = x.ndim - 1
    if given not in (-1, axis) or scale.shape != x.shape[-1:]:
        return None
    if row is not None and row.shape != scale.shape:
        return None
    how: dict[str, Any] = {"axis": axis, "epsilon": epsilon, "rms": rms, "total": total}
    found = normalized(target, x, scale, bias, skip=skip, extra=row, **how)
    if found is None:
        return None
    normal, _, _, summed = found
    return (summed, normal) if total else normal
