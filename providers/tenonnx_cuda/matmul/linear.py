"""Products with a bias, a sum and an activation as one call of cuBLASLt."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tenonnx.operators import Array
from tenonnx.planning.anchors import Part, Walk
from tenonnx_cuda.elementwise.expressions import SINCE, expression
from tenonnx_cuda.elementwise.formulas import ENDINGS
from tenonnx_cuda.fuse import Fused, Scope, fusion
from tenonnx_cuda.kernel_selection import attribute, same_element
from tenonnx_cuda.matmul.epilogue import epilogue_of
from tenonnx_cuda.matmul.gemv import product_of_few

if TYPE_CHECKING:
    import onnx_ir as ir

    from tenonnx_cuda.platform import Platform

MOST_ADDED: Final = 2
"""Values that one call adds: a row, and a matrix."""


@dataclass(frozen=True)
class Linear:
    """A product and the nodes behind it that are part of its call.

    Attributes:
        nodes: In order; each reads the one before, and nobody else reads that.
        added: Values that are added to the product.
        activation: As ``Products.ended`` names it.
    """

    nodes: tuple[ir.Node, ...]
    added: tuple[ir.Value, ...]
    activation: str

    @property
    def operands(self) -> tuple[ir.Value | None, ...]:
        """The factors, and what is added."""
        return (*self.nodes[0].inputs[:2], *self.added)

    @property
    def inputs(self) -> tuple[ir.Value, ...]:
        """The operands, each once."""
        return tuple(dict.fromkeys(value for value in self.operands if value is not None))


def _addend(node: ir.Node, walk: Walk[Scope]) -> ir.Value | str:
    if len(walk.about) + len(walk.found.get("addend", ())) >= MOST_ADDED:
        return f"a call adds {MOST_ADDED} arrays"
    return node.inputs[walk.beside(node)] or "it has one operand"


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
    linear = _behind(node, scope)
    output = linear.nodes[-1].outputs[0]
    following = scope.consumer(output)
    if len(linear.nodes) < 2 or (following is not None and expression(following) is not None):
        return None
    call = linear_call(linear, scope.platform, tf32=scope.options.use_tf32)
    return Fused(linear.nodes, linear.inputs, (output,), call)


def _behind(product: ir.Node, scope: Scope) -> Linear:
    own = [value for value in product.inputs[2:] if value is not None]
    walk = scope.follow(product, own)
    (activation,) = walk.found.get(ACTIVATION.name, ("",))
    return Linear(walk.nodes, (*own, *walk.found.get(ADDEND.name, ())), activation)


def linear_call(linear: Linear, platform: Platform, *, tf32: bool) -> Callable[..., Array | None]:
    """Returns what computes a product with what follows; ``None`` where it does not fit.

    Args:
        linear: The nodes.
        platform: The device.
        tf32: Let factors of float32 be rounded to 10 bits.
    """
    first, products = linear.nodes[0], platform.xp.products
    has_c = len(first.inputs) > 2 and first.inputs[2] is not None
    alpha, beta = attribute(first, "alpha", 1.0), attribute(first, "beta", 1.0) if has_c else 1.0
    turns = [bool(attribute(first, name, 0)) for name in ("transA", "transB")]
    positions = [linear.inputs.index(value) for value in linear.operands]

    def call(*arrays: Array) -> Array | None:
        a, b, *others = (arrays[position] for position in positions)
        if same_element(a, b, *others) is None or b.ndim != 2 or a.ndim < 2:
            return None
        a, b = (x.T if turn else x for x, turn in zip((a, b), turns, strict=True))
        shape = (*a.shape[:-1], b.shape[1])
        epilogue = epilogue_of(others, shape, alpha, beta, linear.activation)
        if epilogue is None or a.shape[-1] != b.shape[0]:
            return None
        y = product_of_few(platform, a, b, epilogue)
        return products.ended(a, b, epilogue, tf32=tf32) if y is None else y

    return call
