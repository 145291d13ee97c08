"""A product with a constant matrix, its bias and its activation as one step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tenonnx.planning.fusion import beside
from tenonnx.records import record
from tenonnx_cpu.activation import activation_of
from tenonnx_cpu.capture.capturable import Capturable
from tenonnx_cpu.fuse import Fused, Scope, fusion
from tenonnx_cpu.kernel_selection import Call, NDArray
from tenonnx_cpu.matmul.product import F32, KINDS, Epilogue, product_launch, request
from tenonnx_cpu.subgraph import inputs_of

if TYPE_CHECKING:
    import onnx_ir as ir

FLOAT = 1
"""``onnx.TensorProto.FLOAT``."""


@record
class Affine:
    """A product by a constant matrix, and what is added to its rows.

    Attributes:
        nodes: What it consists of, after ``cast``.
        weights: The matrix, of any strides; 16-bit floats are widened as they are read.
        bias: One number for every column, if there is one.
        cast: The node that would widen the matrix.
    """

    nodes: tuple[ir.Node, ...]
    weights: NDArray
    bias: NDArray | None
    cast: ir.Node | None = None


@fusion("MatMul", "Gemm")
def fuse_affine(node: ir.Node, scope: Scope) -> Fused | None:
    """Takes a float32 product, a bias after or in it and an activation, if there are two nodes.

    A Cast that widens the matrix goes with them.
    """
    found = _product_and_sum(node, scope) if node.op_type == "MatMul" else gemm_of(node, scope)
    if found is None:
        return None
    nodes, epilogue = found.nodes, Epilogue()
    after = scope.reader(nodes[-1].outputs[0])
    if after is not None and (made := activation_of(scope.site(after))) is not None:
        nodes, epilogue = (*nodes, after), Epilogue(activation=made)
    if len(nodes) < 2:
        return None
    x, output, cast = node.inputs[0], nodes[-1].outputs[0], found.cast
    assert x is not None
    every = nodes if cast is None else (cast, *nodes)
    inputs = (x, *(value for value in inputs_of(list(every)) if value is not x))
    plain = scope.fallback(every, inputs, output)
    request(KINDS[found.weights.dtype])
    call = affine_call(found, epilogue, plain, scope.threads)
    alone = cast is not None and scope.reader(cast.outputs[0]) is node
    return Fused(every if alone else nodes, inputs, (output,), call)


def affine_call(found: Affine, epilogue: Epilogue, plain: Call, threads: int) -> Capturable:
    """Returns what computes all of it; ``plain`` does from the same arguments, of any dtype."""
    weights, bias = found.weights, found.bias
    matrix = found.nodes[0].op_type == "Gemm"

    def call(x: Any, *constants: Any) -> Any:
        made = None
        if x.dtype == F32 and (x.ndim == 2 or not matrix):
            made = product_launch(x, weights, threads, bias, None, epilogue)
        return plain(x, *constants) if made is None else made

    return Capturable(call)


def _product_and_sum(node: ir.Node, scope: Scope) -> Affine | None:
    cast, weights = _matrix(node, scope)
    added = scope.follower(node.outputs[0], "Add")
    if weights is None or added is None or (added.version or 1) < 7:
        return None
    bias = scope.site(added).constant(beside(added, node.outputs[0]))
    if bias is None or bias.dtype != F32 or bias.shape != weights.shape[1:]:
        return None
    return Affine((node, added), weights, bias, cast)


def gemm_of(node: ir.Node, scope: Scope) -> Affine | None:
    """Returns the product and the bias that a Gemm is, if it is no more than that."""
    site = scope.site(node)
    cast, weights = _matrix(node, scope)
    if weights is None or (node.version or 1) < 7 or site.attribute("transA", 0):
        return None
    if site.attribute("alpha", 1.0) != 1 or site.attribute("beta", 1.0) != 1:
        return None
    weights = weights.T if site.attribute("transB", 0) else weights
    bias = None
    if site.given(2):
        bias = site.constant(2)
        if bias is None or bias.dtype != F32 or bias.size != weights.shape[1] or bias.ndim > 2:
            return None
        if bias.shape[-1:] != weights.shape[1:]:
            return None
        bias = bias.reshape(-1)
    return Affine((node,), weights, bias, cast)


def _matrix(node: ir.Node, scope: Scope) -> tuple[ir.Node | None, NDArray | None]:
    """Returns a product's constant matrix, and the node that widens it if it is narrow."""
    weights, cast = scope.site(node).constant(1), None
    if weights is None:
        cast, weights = widening(node, scope)
    elif weights.dtype != F32:
        return None, None
    fits = weights is not None and weights.ndim == 2 and weights.size
    return (cast, weights) if fits else (None, None)


def widening(node: ir.Node, scope: Scope) -> tuple[ir.Node | None, NDArray | None]:
    """Returns the Cast that makes a product's constant B float32, and B in 16 bits."""
    b = node.inputs[1]
    cast = None if b is None else b.producer()
    if cast is None or cast.op_type != "Cast" or cast.domain or not scope.has(cast):
        return None, None
    weight = scope.site(cast).constant(0)
    if weight is None or KINDS.get(weight.dtype, "f32") == "f32":
        return None, None
    return (cast, weight) if scope.site(cast).attribute("to", 0) == FLOAT else (None, None)
