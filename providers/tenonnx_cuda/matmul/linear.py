"""Products with a bias, a sum and an activation as one call of cuBLASLt."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tenonnx.operators import Array
from tenonnx.planning.anchors import Part, Walk, other
from tenonnx_cuda.elementwise.expressions import BROADCASTING_SINCE, expression
from tenonnx_cuda.elementwise.formulas import ENDINGS
from tenonnx_cuda.fuse import Fused, Scope, fusion
from tenonnx_cuda.kernel_selection import Site, Target, same_element
from tenonnx_cuda.matmul.epilogue import epilogue_of

if TYPE_CHECKING:
    import onnx_ir as ir

# Values that one call adds: a row, and a matrix.
MOST_ADDED: Final = 2


def _addend(node: ir.Node, walk: Walk[Scope]) -> ir.Value | str:
    if len(walk.about) + len(walk.found.get("addend", ())) >= MOST_ADDED:
        return f"a call adds {MOST_ADDED} arrays"
    return other(node, walk)


def _activation(node: ir.Node, _: Walk[Scope]) -> tuple[str] | str:
    text = expression(node)
    names = (name for name in ("Relu", "GeluTanh") if ENDINGS[name] == text)
    return next(((name,) for name in names), "cuBLASLt does not apply it")


ADDEND = Part("addend", ("Add",), _addend, since=BROADCASTING_SINCE, many=True)
ACTIVATION_PART = Part(
    "activation", ("Gelu", "Relu", "com.microsoft::FastGelu"), _activation, BROADCASTING_SINCE
)


@fusion("MatMul", "Gemm", takes=(ADDEND, ACTIVATION_PART))
def fuse_linear(node: ir.Node, scope: Scope) -> Fused | None:
    """Take a product behind which no elementwise node is left.

    Where one is, a kernel of those nodes costs the same.
    """
    products = scope.target.xp.products
    if products is None or products.lt is None:
        return None
    own = [value for value in node.inputs[2:] if value is not None]
    walk = scope.follow(node, own)
    following = scope.consumer(walk.value)
    if len(walk.nodes) < 2 or (following is not None and expression(following) is not None):
        return None
    (activation,) = walk.found.get(ACTIVATION_PART.name, ("",))
    operands = [*node.inputs[:2], *own, *walk.found.get(ADDEND.name, ())]
    inputs = tuple(dict.fromkeys(operands))
    site = scope.site(node)
    call = linear_call(site, site.attribute("beta", 1.0) if own else 1.0, activation)
    call = dataclasses.replace(call, order=tuple(map(inputs.index, operands)))
    return Fused(walk.nodes, inputs, (walk.value,), call)


def turns_of(site: Site) -> tuple[bool, bool]:
    """Return whether each factor of a product is transposed."""
    return bool(site.attribute("transA", 0)), bool(site.attribute("transB", 0))


def linear_call(site: Site, beta: float, activation: str = "") -> Linear:
    """Return the call of a product with what follows.

    Args:
        site: The product.
        beta: What multiplies the first one that is added.
        activation: As ``Products.ended`` names it.
    """
    alpha = site.attribute("alpha", 1.0)
    return Linear(site.target, alpha, beta, turns_of(site), activation)


@dataclass(frozen=True)
class Linear:
    """A call of a product's factors and of what is added; ``None`` where that is not one call.

    Attributes:
        target: The device.
        alpha: What multiplies the product.
        beta: What multiplies the first one that is added.
        turns: Whether each factor is transposed.
        activation: As ``Products.ended`` names it.
        order: The positions of operands in what it is given; all in order if ``None``.
    """

    target: Target
    alpha: float
    beta: float
    turns: tuple[bool, bool]
    activation: str
    order: tuple[int, ...] | None = None

    @property
    def products(self) -> Any:
        """The device's cuBLAS."""
        return self.target.xp.products

    def __call__(self, *given: Array) -> Array | None:
        """Return the result."""
        a, b, *others = given if self.order is None else (given[i] for i in self.order)
        if same_element(a, b, *others) is None or b.ndim != 2 or a.ndim < 2:
            return None
        a, b = (x.T if turn else x for x, turn in zip((a, b), self.turns, strict=True))
        shape = (*a.shape[:-1], b.shape[1])
        epilogue = epilogue_of(others, shape, self.alpha, self.beta, self.activation)
        if epilogue is None or a.shape[-1] != b.shape[0]:
            return None
        if not (others or self.activation):
            return None
        made: Array | None = self.products.ended(a, b, epilogue, tf32=self.target.tf32)
        return made
