"""Products with matrices that are chosen as the model runs, as layers of experts have them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tenonnx.by_name import cacheable
from tenonnx_cpu.activation import NO_ACTIVATION
from tenonnx_cpu.buffers import contiguous, empty
from tenonnx_cpu.fuse import CHOSEN, Fused, Scope, fusion
from tenonnx_cpu.jit.scratch import worker_floats
from tenonnx_cpu.kernel_selection import Call, NDArray
from tenonnx_cpu.matmul.kernels import WORKSPACE
from tenonnx_cpu.matmul.product import (
    F32,
    GEMV,
    NO_BIAS,
    NO_RESIDUAL,
    kind_of,
    product,
    request,
)

if TYPE_CHECKING:
    import onnx_ir as ir

# Rows up to which each reads the matrix that is its own.
MAX_ROWS_BY_MATRIX = 8


@fusion("MatMul", priority=CHOSEN)
def fuse_choice(node: ir.Node, scope: Scope) -> Fused | None:
    """Take a product with the choice from a constant stack of matrices that it alone reads.

    The matrices are read where they are; the nodes copy one for every row that is multiplied.
    """
    for position, value in enumerate(node.inputs):
        choice = scope.maker(value, "Gather", "GatherND")
        if choice is not None and scope.reader(choice.outputs[0]) is node:
            return _fused(choice, node, scope, is_left=position == 0)
    return None


def _fused(node: ir.Node, matmul: ir.Node, scope: Scope, *, is_left: bool) -> Fused | None:
    site = scope.site(node)
    stack = site.constant(0)
    if stack is None or stack.ndim != 3 or not kind_of(stack.dtype):
        return None
    if site.attribute("axis", 0) or site.attribute("batch_dims", 0):
        return None
    request(kind_of(stack.dtype))
    inputs = (node.inputs[0], node.inputs[1], matmul.inputs[1 if is_left else 0])
    plain = scope.fallback((node, matmul), inputs, matmul.outputs[0])
    call = ChoiceCall(is_left, node.op_type == "GatherND", scope.threads, plain)
    return Fused((node, matmul), inputs, (matmul.outputs[0],), call)


@cacheable
@dataclass(frozen=True, eq=False)
class ChoiceCall:
    """A product with matrices that are chosen from a stack.

    Attributes:
        is_left: Whether the chosen matrices are the left operand.
        is_nd: Whether the choice has the axis of a GatherND more.
        threads: How many to use at most.
        plain: Computes the same from the same arguments.
    """

    is_left: bool
    is_nd: bool
    threads: int
    plain: Call

    def __call__(self, stack: NDArray, choice: NDArray, x: NDArray) -> Any:
        """Return the product."""
        places = choice[:, 0] if self.is_nd and choice.shape[1:] == (1,) else choice
        row, column = (x.shape[-1] == 1, 2) if self.is_left else (x.shape[-2:-1] == (1,), 1)
        if places.ndim != 1 or x.ndim != 3 or not row or x.shape[0] != places.size:
            return self.plain(stack, choice, x)
        matrices = stack.transpose(0, 2, 1) if self.is_left else stack
        result = chosen_product(np.squeeze(x, column), matrices, places, self.threads)
        return self.plain(stack, choice, x) if result is None else np.expand_dims(result, column)


def chosen_product(x: NDArray, stack: NDArray, places: NDArray, threads: int) -> NDArray | None:
    """Return ``x[p] @ stack[places[p]]`` for every row.

    Args:
        x: float32 ``[rows, depth]``.
        stack: ``[matrices, depth, columns]`` of any strides.
        places: Which matrix, for each row; negative ones count from the end.
        threads: How many to use at most.

    Returns:
        ``None`` if no kernel takes these arrays or it is not ready, or there is no such matrix.
    """
    count, depth, columns = stack.shape
    wrong = x.dtype != F32 or x.shape[1] != depth or not (x.size and columns and stack.size)
    if wrong or not stack.flags.aligned or places.min() < -count or places.max() >= count:
        return None
    places, x = places % count, contiguous(x)
    result = empty((x.shape[0], columns))
    if x.shape[0] > MAX_ROWS_BY_MATRIX:
        return result if _by_matrix(x, stack, places, threads, result) else None
    kind = kind_of(stack.dtype)
    run = GEMV[kind].run
    if run is None:
        return None
    offsets = np.stack([np.arange(x.shape[0]) * x.strides[0], places * stack.strides[0]], axis=1)
    run(
        x[:1], stack[0] if kind == "f32" else stack[0].view(np.uint16), result, offsets, NO_BIAS,
        NO_RESIDUAL, 1.0, *NO_ACTIVATION, worker_floats(WORKSPACE, threads), threads,
    )  # fmt: skip
    return result


def _by_matrix(x: NDArray, stack: NDArray, places: NDArray, threads: int, result: NDArray) -> bool:
    """Multiply all rows of each matrix at once; return whether kernels took them."""
    for place in sorted({*places.tolist()}):
        rows = np.flatnonzero(places == place)
        done = product(x[rows], stack[place], threads)
        if done is None:
            return False
        result[rows] = done
    return True
