"""Reverse-mode differentiation of the part of a graph that a Gradient node names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import onnx_ir as ir
from onnx_ir.passes.common import ShapeInferencePass

from tenonnx import InvalidGraph, NotSupported, TransformContext
from tenonnx.graph import inputs, label, python_attributes, subgraphs
from tenonnx_training.rules import FLAT, GRADIENT_RULES
from tenonnx_training.tensor import Tensor


def lower_gradients(model: ir.Model, context: TransformContext) -> bool:
    """Replace every Gradient node by the nodes that compute its outputs.

    Raises:
        InvalidGraph: A node names a tensor that its graph does not have.
        NotSupported: An operator on the way has no rule.
    """
    del context
    waiting = [node for graph in model.graphs() for node in graph if _is_gradient(node)]
    if not waiting:
        return False
    ShapeInferencePass()(model)
    while waiting:
        # A gradient of another gradient waits until that one is replaced.
        parts = [Part(node) for node in waiting]
        ready = next((p for p in parts if not any(map(_is_gradient, p.nodes))), None)
        if ready is None:
            raise InvalidGraph(f"{label(waiting[0])} depends on its own result")
        ready.differentiate()
        waiting.remove(ready.gradient)
    return True


def _is_gradient(node: ir.Node) -> bool:
    return node.domain == "ai.onnx.preview.training" and node.op_type == "Gradient"


class Part:
    """The part of a graph that a Gradient node differentiates.

    Attributes:
        gradient: The node.
        xs: The values to differentiate by.
        fixed: Those, and the other independent values.
        y: The value to differentiate.
        nodes: The nodes between them, in order.
    """

    def __init__(self, gradient: ir.Node) -> None:
        assert isinstance(gradient.graph, ir.Graph)
        self.gradient = gradient
        self.graph = gradient.graph
        known = ir.convenience.create_value_mapping(self.graph, include_subgraphs=False)
        names = python_attributes(gradient)
        for name in ("xs", "y"):
            if name not in names:
                raise InvalidGraph(f"{label(gradient)} lacks its attribute {name}")
        for name in (*names["xs"], *names.get("zs", ()), names["y"]):
            if name not in known:
                raise InvalidGraph(f"{label(gradient)} names '{name}', which its graph lacks")
        self.xs = [known[name] for name in names["xs"]]
        self.fixed = [*self.xs, *(known[name] for name in names.get("zs", ()))]
        self.y = known[names["y"]]
        if len(gradient.inputs) != len(self.fixed):
            raise InvalidGraph(
                f"{label(gradient)} has {len(gradient.inputs)} inputs for the "
                f"{len(self.fixed)} tensors in xs and zs"
            )
        self.nodes = self._between()

    def _between(self) -> list[ir.Node]:
        fixed = set(self.fixed)
        nodes = [n for n in self.graph if n is not self.gradient and fixed.isdisjoint(n.outputs)]
        dependent = _dependent(nodes, fixed)
        needed = {self.y}
        found = []
        for node in reversed(nodes):
            if not needed.isdisjoint(node.outputs) and not dependent.isdisjoint(node.outputs):
                needed.update(inputs(node))
                found.append(node)
        return found[::-1]

    def differentiate(self) -> None:
        """Replace the Gradient node by nodes that compute the gradients."""
        before = set(self.graph)
        values = self._forward()
        gradients = self._backward(values)
        for x, output in zip(self.xs, self.gradient.outputs, strict=False):
            if output.name:
                found = gradients.get(x) or Tensor(self.graph, values[x]).full(0)
                _replace(output, found.apply("Identity").value)
        self.graph.remove(self.gradient, safe=True)
        for node in reversed([node for node in self.graph if node not in before]):
            if not any(value.uses() or value.is_graph_output() for value in node.outputs):
                self.graph.remove(node, safe=True)
        self.graph.sort()

    def _forward(self) -> dict[ir.Value, ir.Value]:
        """Return the replacement of each value, given the Gradient node's inputs."""
        given = zip(self.fixed, self.gradient.inputs, strict=True)
        values = {symbol: symbol if value is None else value for symbol, value in given}
        if any(symbol is not value for symbol, value in values.items()):
            for node in self.nodes:
                values.update(zip(node.outputs, self._copy(node, values), strict=True))
        return values

    def _copy(self, node: ir.Node, values: Mapping[ir.Value, ir.Value]) -> Iterable[ir.Value]:
        if any(subgraphs(node)):
            raise NotSupported(
                f"{label(self.gradient)} cannot pass {label(node)}: it has subgraphs"
            )
        given = [None if value is None else values.get(value, value) for value in node.inputs]
        copy = ir.node(
            node.op_type,
            given,
            domain=node.domain,
            num_outputs=len(node.outputs),
            version=node.version,
        )
        copy.attributes.update(node.attributes)
        self.graph.append(copy)
        return copy.outputs

    def _backward(self, values: Mapping[ir.Value, ir.Value]) -> dict[ir.Value, Tensor]:
        """Return the gradients of the values that ``y`` depends on."""

        def tensor(value: ir.Value) -> Tensor:
            return Tensor(self.graph, values.get(value, value))

        moving = _dependent(self.nodes, self.xs)
        found = {self.y: tensor(self.y).full(1)}
        for node in reversed(self.nodes):
            output = node.outputs[0]
            if moving.isdisjoint(node.outputs) or found.keys().isdisjoint(node.outputs):
                continue
            given = [None if value is None else tensor(value) for value in node.inputs]
            products = _products(node, found.get(output), tensor(output), given)
            for value, product in zip(node.inputs, products, strict=False):
                if value in moving and product is not None:
                    found[value] = found[value] + product if value in found else product
        return found


def _dependent(nodes: Iterable[ir.Node], sources: Iterable[ir.Value]) -> set[ir.Value]:
    """Return the sources and all values that are computed from them."""
    found = set(sources)
    for node in nodes:
        if not found.isdisjoint(inputs(node)):
            found.update(node.outputs)
    return found


def _products(
    node: ir.Node, g: Tensor | None, y: Tensor, given: list[Tensor | None]
) -> Iterable[Tensor | None]:
    """Return the gradients that a node passes on to its inputs."""
    ours = node.domain == ""
    if ours and node.op_type in FLAT:
        return ()
    rule = GRADIENT_RULES.get(node.op_type) if ours else None
    if rule is None or g is None or (node.version or 1) < rule.since:
        known = ", ".join(f"{name}-{rule.since}" for name, rule in sorted(GRADIENT_RULES.items()))
        raise NotSupported(
            f"Gradient has no rule for {label(node)}", hint=f"there are rules from {known} on"
        )
    try:
        products = rule.call(g, y, *given, **python_attributes(node))
    except ValueError as error:
        raise NotSupported(f"Gradient has no rule for {label(node)}: {error}") from error
    if not rule.broadcasts:
        return products
    return [
        None if p is None or x is None else p.sum_to(x)
        for p, x in zip(products, given, strict=False)
    ]


def _replace(output: ir.Value, value: ir.Value) -> None:
    """Replace a node's output by a value, under the same name."""
    value.name, output.name = output.name, None
    value.type, value.shape = output.type, output.shape
    ir.convenience.replace_all_uses_with(output, value, replace_graph_outputs=True)
