"""Products with a bias, a sum and an activation as one call of cuBLASLt."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from tenonnx.operators import Array
from tenonnx.planning.anchors import Part, Walk, other
from tenonnx_cuda.elementwise.expressions import SINCE, expression
from tenonnx_cuda.elementwise.formulas import ENDINGS
from tenonnx_cuda.fuse import Fused, Scope, fusion
from tenonnx_cuda.kernel_selection import Site, same_element
from tenonnx_cuda.matmul.epilogue import epilogue_of

if TYPE_CHECKING:
    import onnx_ir as ir

MOST_ADDED: Final = 2
"""Values that one call adds: a row, and a matrix."""


def _addend(node: ir.Node, walk: Walk[Scope]) -> ir.Value | str:
    if len(walk.about) + len(walk.found.get("addend", ())) >= MOST_ADDED:
        return f"a call adds {MOST_ADDED} arrays"
    return other(node, walk)


def _activation(node: ir.Node, _: Walk[Scope]) -> tuple[str] | str:
    text = expression(node)
    names = (name for name in ("Relu", "GeluTanh") if ENDINGS[name] == text)
    return next(((name,) for name in names), "cuBLASLt does not apply it")


ADDEND = Part("addend", ("Add",), _addend, since=SINCE, many=True)
ACTIVATION = Part("activation", ("Gelu", "Relu", "com.microsoft::FastGelu"), _activation, SINCE)


@fusion("MatMul", "Gemm", takes=(ADDEND, ACTIVATION))
def fuse_linear(node: ir.Node, scope: Scope) -> Fused | None:
    """Takes a product behind which no elementwise node is left.

    Where one is, a kernel of those nodes costs the same.
    """
    products = scope.platform.xp.products
    if products is None or products.lt is None:
        return None
    own = [value for value in node.inputs[2:] if value is not None]
    walk = scope.follow(node, own)
    following = scope.consumer(walk.value)
    if len(walk.nodes) < 2 or (following is not None and expression(following) is not None):
        return None
    (activation,) = walk.found.get(ACTIVATION.name, ("",))
    operands = [*node.inputs[:2], *own, *walk.found.get(ADDEND.name, ())]
    inputs = tuple(dict.fromkeys(operands))
    site, each = scope.site(node), operator.itemgetter(*map(inputs.index, operands))
    call = linear_call(site, site.attribute("beta", 1.0) if own else 1.0, activation)
    return Fused(walk.nodes, inputs, (walk.value,), lambda *arrays: call(*each(arrays)))


def linear_call(site: Site, beta: float, activation: str = "") -> Callable[..., Array | None]:
    """Returns what computes a product with what follows; ``None`` where that is not one call.

    Args:
        site: The product, whose factors and what is added to it the call takes.
        beta: What multiplies the first one that is added.
        activation: As ``Products.ended`` names it.
    """
    products, alpha = site.xp.products, site.attribute("alpha", 1.0)
    turns = [bool(site.attribute(name, 0)) for name in ("transA", "transB")]

    def call(a: Array, b: Array, *others: Array) -> Array | None:
        if same_element(a, b, *others) is None or b.ndim != 2 or a.ndim < 2:
            return None
        a, b = (x.T if turn else x for x, turn in zip((a, b), turns, strict=True))
        shape = (*a.shape[:-1], b.shape[1])
        epilogue = epilogue_of(others, shape, alpha, beta, activation)
        if epilogue is None or a.shape[-1] != b.shape[0]:
            return None
        if not (others or activation):
            return None
        return products.ended(a, b, epilogue, tf32=site.tf32)

    return call
