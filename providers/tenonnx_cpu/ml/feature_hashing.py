"""Sums of numbers by bucket, without a row of zeros per number, as FeatureHasher is exported."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from tenonnx.by_name import cacheable
from tenonnx_cpu.buffers import contiguous, empty
from tenonnx_cpu.fuse import PATTERN, Fused, Scope, fusion
from tenonnx_cpu.jit.runtime import JitKernel
from tenonnx_cpu.jit.threads.sharing import shared_out
from tenonnx_cpu.kernel_selection import Call, NDArray

if TYPE_CHECKING:
    import onnx_ir as ir

BUCKETS = JitKernel("ml.feature_hashing", "sum_buckets")

# Numbers and sums that are worth a second thread.
MIN_HASHED_NUMBERS_PER_THREAD = 1 << 16

INT64_DTYPE = np.dtype(np.int64)
# ``onnx.TensorProto.FLOAT``.
FLOAT_TYPE = 1


@fusion("ReduceSum", priority=PATTERN)
def fuse_buckets(node: ir.Node, scope: Scope) -> Fused | None:
    """Take ScatterElements into rows of zeros, a Reshape, a Cast, and the ReduceSum of rows."""
    axes = scope.site(node).scalar(1) if len(node.inputs) == 2 else None
    if axes is None or axes.item() != -2 or scope.site(node).attribute("keepdims", 1):
        return None
    nodes = [node]
    for operator in ("Cast", "Reshape", "ScatterElements", "Mul"):
        value = nodes[0].inputs[0]
        found = scope.maker(value, operator)
        if found is None or value is None or scope.reader(value) is None:
            return None
        nodes.insert(0, found)
    product, scatter, reshape, cast, _ = nodes
    buckets = _buckets(product, scatter, scope)
    at_once = scope.site(scatter).attribute("reduction", "none") == "none"
    if not buckets or not at_once or scope.site(scatter).attribute("axis", 0) not in (1, -1):
        return None
    if scope.site(cast).attribute("to", 0) != FLOAT_TYPE:
        return None
    inputs = scatter.inputs[1], scatter.inputs[2], reshape.inputs[1]
    BUCKETS.request()
    return scope.fused(
        nodes, inputs, lambda plain: functools.partial(_summed, buckets, scope.threads, plain)
    )


def _buckets(product: ir.Node, scatter: ir.Node, scope: Scope) -> int:
    """Return how many zeros each of the places is multiplied by; 0 if it is not that."""
    places = scatter.inputs[1]
    if places not in product.inputs:
        return 0
    zeros = scope.site(product).constant(1 - [*product.inputs].index(places))
    if zeros is None or zeros.dtype != INT64_DTYPE or zeros.ndim != 1 or zeros.any():
        return 0
    return len(zeros)


@cacheable
def _summed(
    buckets: int, threads: int, plain: Call, places: NDArray, numbers: NDArray, shape: NDArray
) -> Any:
    run, sums = BUCKETS.run, shape.tolist()
    rows = math.prod(sums[:-2])
    are_ints = places.dtype == numbers.dtype == INT64_DTYPE
    is_column = places.ndim == 2 and places.shape == numbers.shape == (places.size, 1)
    are_rows = sums[-2:] == [-1, buckets] and min(sums[:-2], default=1) > 0
    if run is None or not (are_ints and is_column and are_rows) or places.size % rows:
        return plain(places, numbers, shape)
    y, refused = empty((rows, buckets)), np.zeros(1, np.uint8)
    each = [contiguous(x).reshape(rows, -1) for x in (places, numbers)]
    grain, used = shared_out(rows, places.size + y.size, MIN_HASHED_NUMBERS_PER_THREAD, threads)
    run(*each, y, refused, grain, used)
    if refused[0]:
        return plain(places, numbers, shape)
    return y.reshape(*sums[:-2], buckets)
