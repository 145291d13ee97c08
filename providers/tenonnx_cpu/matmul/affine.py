"""A product with a constant matrix, its bias and its activation as one step."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tenonnx.by_name import cacheable
from tenonnx.planning.anchors import BROADCASTING_OPSET, Part, Walk
from tenonnx.planning.fusion import inputs_of
from tenonnx_cpu.activation import ACTIVATION_PART, NO_ACTIVATION
from tenonnx_cpu.capture.capturable import Capturable
from tenonnx_cpu.fuse import Fused, Scope, fusion
from tenonnx_cpu.kernel_selection import Call, NDArray
from tenonnx_cpu.matmul.bfloat16 import Panels, panels_of, tile_launch
from tenonnx_cpu.matmul.product import F32, Epilogue, kind_of, product_launch, request

if TYPE_CHECKING:
    import onnx_ir as ir

# ``onnx.TensorProto.FLOAT``.
FLOAT_TYPE = 1


@cacheable
@dataclass(frozen=True)
class Affine:
    """A product by a constant matrix, and what it adds to its rows itself.

    Attributes:
        weights: The matrix, of any strides; 16-bit floats are widened as they are read.
        bias: One number for every column, if there is one.
        cast: The node that would widen the matrix.
        panels: The same matrix as bfloat16, if that is precise enough.
    """

    weights: NDArray
    bias: NDArray | None
    cast: ir.Node | None = None
    panels: Panels | None = None


def _bias(node: ir.Node, walk: Walk[Scope]) -> NDArray | str:
    if walk.about.bias is not None:
        return "the product has a bias"
    bias, columns = walk.scope.site(node).constant(walk.beside(node)), walk.about.weights.shape[1:]
    if bias is None or bias.dtype != F32 or bias.shape != columns:
        return "it adds no constant float32 for every column"
    return bias


BIAS = Part("bias", ("Add",), _bias, since=BROADCASTING_OPSET)


@fusion("MatMul", "Gemm", takes=(BIAS, ACTIVATION_PART))
def fuse_affine(node: ir.Node, scope: Scope) -> Fused | None:
    """Take a float32 product, a bias after or in it and an activation, if there are two nodes.

    A Cast that widens the matrix goes with them. In bfloat16 it takes products by themselves, too.
    """
    found = gemm_of(node, scope) if node.op_type == "Gemm" else _product_of(node, scope)
    walk = None if found is None else scope.follow(node, found)
    narrows = scope.narrows(node)
    if found is None or walk is None or len(walk.nodes) < (1 if narrows else 2):
        return None
    if narrows:
        found = replace(found, panels=_panels_of(node, found.cast, scope))
    sources = () if found.cast is None else (found.cast,)
    inputs = dict.fromkeys((node.inputs[0], *inputs_of([*sources, *walk.nodes])))
    request(kind_of(found.weights.dtype))
    make = functools.partial(_call, found, walk, scope.threads)
    return scope.fused(walk.nodes, inputs, make, sources)


def _panels_of(node: ir.Node, cast: ir.Node | None, scope: Scope) -> Panels:
    turned = node.op_type == "Gemm" and bool(scope.site(node).attribute("transB", 0))
    maker, place = (node, 1) if cast is None else (cast, 0)
    site = scope.site(maker)
    return panels_of(site, place, np.transpose, "turned") if turned else panels_of(site, place)


def _call(found: Affine, walk: Walk[Scope], threads: int, plain: Call) -> Capturable:
    """Return what computes all of it; ``plain`` does from the same arguments, of any dtype."""
    bias = walk.found.get("bias", found.bias)
    epilogue = Epilogue(activation=walk.found.get("activation", NO_ACTIVATION))
    is_gemm = walk.nodes[0].op_type == "Gemm"
    return Capturable(
        AffineCall(found.weights, found.panels, bias, epilogue, is_gemm, threads, plain)
    )


@cacheable
@dataclass(frozen=True, eq=False)
class AffineCall:
    """A product by a constant matrix, with its bias and its activation.

    Attributes:
        weights: The matrix.
        panels: The same as bfloat16, if that is precise enough.
        bias: One number for every column, if there is one.
        epilogue: The activation.
        is_gemm: Whether the left matrix has to have two axes.
        threads: How many to use at most.
        plain: Computes the same from the same arguments, of any dtype.
    """

    weights: NDArray
    panels: Panels | None
    bias: NDArray | None
    epilogue: Epilogue
    is_gemm: bool
    threads: int
    plain: Call

    def __call__(self, x: Any, *constants: Any) -> Any:
        """Return a launch, or the result."""
        if x.dtype != F32 or (x.ndim != 2 and self.is_gemm):
            return self.plain(x, *constants)
        made, rest = None, (self.threads, self.bias, None, self.epilogue)
        if self.panels is not None:
            made = tile_launch(x, self.panels, *rest)
        if made is None:
            made = product_launch(x, self.weights, *rest)
        return self.plain(x, *constants) if made is None else made


def _product_of(node: ir.Node, scope: Scope) -> Affine | None:
    cast, weights = _matrix(node, scope)
    return None if weights is None else Affine(weights, None, cast)


def gemm_of(node: ir.Node, scope: Scope) -> Affine | None:
    """Return the product and the bias that a Gemm is, if it is no more than that."""
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
    return Affine(weights, bias, cast)


def _matrix(node: ir.Node, scope: Scope) -> tuple[ir.Node | None, NDArray | None]:
    """Return a product's constant matrix, and the node that widens it if it is narrow."""
    weights, cast = scope.site(node).constant(1), None
    if weights is None:
        cast, weights = widening(node, scope)
    elif weights.dtype != F32:
        return None, None
    fits = weights is not None and weights.ndim == 2 and weights.size
    return (cast, weights) if fits else (None, None)


def widening(node: ir.Node, scope: Scope) -> tuple[ir.Node | None, NDArray | None]:
    """Return the Cast that makes a product's constant B float32, and B in 16 bits."""
    cast = scope.maker(node.inputs[1], "Cast")
    weight = None if cast is None else scope.site(cast).constant(0)
    if cast is None or weight is None or kind_of(weight.dtype) in ("", "f32"):
        return None, None
    return (cast, weight) if scope.site(cast).attribute("to", 0) == FLOAT_TYPE else (None, None)
