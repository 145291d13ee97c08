"""Products with a bias, a sum and an activation as one call of cuBLASLt."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tenonnx.operators import Array
from tenonnx.provider import Device, Step
from tenonnx_cuda.chosen import same_element
from tenonnx_cuda.elementwise.chains import only_reader
from tenonnx_cuda.elementwise.expressions import MICROSOFT, expression
from tenonnx_cuda.graphs.grouping import Group
from tenonnx_cuda.graphs.program import Program
from tenonnx_cuda.products.few import product_of_few
from tenonnx_cuda.products.matmul import summands

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


def linears(
    nodes: Sequence[ir.Node], escaping: frozenset[ir.Value], is_free: Callable[[ir.Node], bool]
) -> Iterator[Linear]:
    """Yields products behind which no elementwise node is left; a kernel of those costs the same.

    Args:
        nodes: In an order in which they can run.
        escaping: Values that something outside the nodes reads.
        is_free: Whether a node may be computed otherwise than by the kernel it has.
    """
    taken: set[ir.Node] = set()
    for node in nodes:
        if node.domain == "" and node.op_type in ("MatMul", "Gemm") and is_free(node):
            found = _behind(node, escaping, lambda n: n not in taken and is_free(n))
            following = only_reader(found.nodes[-1], escaping)
            if len(found.nodes) > 1 and (following is None or expression(following) is None):
                taken.update(found.nodes)
                yield found


def _behind(
    product: ir.Node, escaping: frozenset[ir.Value], is_free: Callable[[ir.Node], bool]
) -> Linear:
    nodes, activation = [product], ""
    added = [value for value in product.inputs[2:] if value is not None]
    while not activation and (node := only_reader(nodes[-1], escaping)) is not None:
        if expression(node) is None or not is_free(node):
            break
        others = [v for v in node.inputs if v not in (None, nodes[-1].outputs[0])]
        kind = _activation(node)
        fits = len(others) == 1 if node.op_type == "Add" else bool(kind)
        if not fits or len(added) + len(others) > MOST_ADDED:
            break
        nodes.append(node)
        added += (value for value in others if value is not None)
        activation = kind
    return Linear(tuple(nodes), tuple(added), activation)


def _activation(node: ir.Node) -> str:
    """Returns what cuBLASLt calls an activation; nothing for what is none of its."""
    if (node.domain, node.op_type) == ("", "Relu"):
        return "relu"
    approximate = node.attributes.get("approximate")
    by_tanh = approximate is not None and approximate.value == "tanh"
    is_gelu = (node.domain, node.op_type) == ("", "Gelu") and by_tanh
    return "gelu" if is_gelu or (node.domain, node.op_type) == (MICROSOFT, "FastGelu") else ""


def linear_step(
    linear: Linear, steps: Sequence[Step], platform: Platform, device: Device, *, tf32: bool
) -> Step:
    """Returns a product with what follows as one step; the nodes' own steps where it does not fit.

    Args:
        linear: The nodes.
        steps: Theirs.
        platform: The device.
        device: As the runtime knows it.
        tf32: Let factors of float32 be rounded to 10 bits.
    """
    first, output = linear.nodes[0], linear.nodes[-1].outputs[0]
    attributes = {name: attribute.value for name, attribute in first.attributes.items()}
    factors = {name: attributes.get(name, 1.0) for name in ("alpha", "beta")}
    taken = tuple(dict.fromkeys((*first.inputs[:2], *linear.added)))

    @functools.cache
    def program() -> Program:
        group = Group()
        for step in steps:
            group.add(step)
        return Program(group, (output,))

    def call(*arrays: Array) -> Array:
        values: dict[Any, Array] = dict(zip(taken, arrays, strict=True))
        a, b, *others = (values[value] for value in (*first.inputs[:2], *linear.added))
        if same_element(a, b, *others) is not None and b.ndim == 2 <= a.ndim:
            a = a.T if attributes.get("transA", 0) else a
            b = b.T if attributes.get("transB", 0) else b
            how = summands(others, (*a.shape[:-1], b.shape[1]), **factors)
            if how is not None and a.shape[-1] == b.shape[0]:
                how["activation"] = linear.activation
                y = product_of_few(platform, a, b, **how)
                y = platform.xp.products.ended(a, b, **how, tf32=tf32) if y is None else y
                if y is not None:
                    return y
        rest = program()
        result: Array = rest(*(values[value] for value, _ in rest.inputs))[0]
        return result

    return Step(call, taken, (output,), linear.nodes, device=device)
