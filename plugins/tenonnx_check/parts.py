"""Sets of a model's nodes as models of their own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from tenonnx.graph import check_and_sort, inputs, label, resolve_versions
from tenonnx.graph.functions import inline_functions


@dataclass(frozen=True)
class Part:
    """Some nodes as a model.

    Attributes:
        model: The nodes; its weights are those of the whole model.
        feeds: For each input, the name of its value in the whole model.
        outputs: For each output in order, the name of its value in the whole model.
    """

    model: ir.Model
    feeds: Mapping[str, str]
    outputs: Sequence[str]


class Whole:
    """A model whose nodes can be run in sets.

    Args:
        model: Owned by this object from now on: functions are replaced by their bodies.
    """

    def __init__(self, model: ir.Model) -> None:
        resolve_versions(model)
        inline_functions(model)
        check_and_sort(model)
        self.model = model
        self.nodes: tuple[ir.Node, ...] = tuple(model.graph)
        self._makers = {v.name or "": node for node in self.nodes for v in node.outputs}
        self._readers: dict[ir.Value, set[ir.Node]] = {}
        for node in self.nodes:
            for value in inputs(node):  # those that its bodies read, too
                self._readers.setdefault(value, set()).add(node)

    def maker(self, name: str) -> ir.Node | None:
        """Return the node at the top that makes a value; ``None`` if none does."""
        return self._makers.get(name)

    def values(self) -> list[ir.Value]:
        """Return the values that nodes make at the top and that something reads, in order."""
        return self._made(self.nodes)

    def with_all_values(self) -> ir.Model:
        """Return a model whose outputs are all ``values()``."""
        return self._as_model(self.nodes, self.values())

    def part(self, numbers: Sequence[int], wanted: Iterable[str] | None = None) -> Part:
        """Return some nodes as a model.

        Args:
            numbers: Positions in ``nodes``, ascending.
            wanted: The names of its outputs; by default all that something else reads.
        """
        nodes = [self.nodes[number] for number in numbers]
        if wanted is None:
            inside = set(nodes)
            outputs = [v for v in self._made(nodes) if self._escapes(v, inside)]
        else:
            names = set(wanted)
            outputs = [v for v in self._made(nodes) if v.name in names]
        model = self._as_model(nodes, outputs)
        fed = [value.name or "" for value in model.graph.inputs]
        return Part(model, {name: name for name in fed}, [value.name or "" for value in outputs])

    def apart(self, numbers: Sequence[int]) -> Part:
        """Return some nodes as a model in which none reads what another makes."""
        graphs, feeds, outputs, weights = [], {}, [], {}
        for number in numbers:
            node = self.nodes[number]
            graph = self._as_model([node], self._made([node])).graph
            for value in graph.inputs:
                feeds[f"{number}/{value.name}"] = value.name or ""
                value.name = f"{number}/{value.name}"
            outputs += [value.name or "" for value in graph.outputs]
            for value in graph.outputs:
                value.name = f"{number}/{value.name}"
            for name, value in list(graph.initializers.items()):
                del graph.initializers[name]
                value.name = f"{number}/{name}"
                weights[value.name] = value
            graphs.append(graph)
        nodes = [node for graph in graphs for node in list(graph)]
        for graph in graphs:
            graph.remove(list(graph))
        merged = ir.Graph(
            [value for graph in graphs for value in _taken(graph.inputs)],
            [value for graph in graphs for value in _taken(graph.outputs)],
            nodes=nodes,
            initializers=list(weights.values()),
            opset_imports=dict(self.model.graph.opset_imports),
            name="apart",
        )
        return Part(ir.Model(merged, ir_version=self.model.ir_version), feeds, outputs)

    def _made(self, nodes: Iterable[ir.Node]) -> list[ir.Value]:
        made = (value for node in nodes for value in node.outputs)
        return [v for v in made if v in self._readers or v.is_graph_output()]

    def _escapes(self, value: ir.Value, nodes: set[ir.Node]) -> bool:
        return value.is_graph_output() or not self._readers[value] <= nodes

    def _as_model(self, nodes: Sequence[ir.Node], outputs: Sequence[ir.Value]) -> ir.Model:
        made = {value for node in nodes for value in node.outputs}
        read = dict.fromkeys(v for node in nodes for v in inputs(node) if v not in made)
        view = ir.GraphView(
            [value for value in read if not value.is_initializer()],
            outputs,
            nodes=nodes,
            initializers=[value for value in read if value.is_initializer()],
            opset_imports=dict(self.model.graph.opset_imports),
            name=self.model.graph.name,
        )
        return ir.Model(view.clone(), ir_version=self.model.ir_version)

    def label(self, number: int) -> str:
        """Return a node's name for people."""
        return label(self.nodes[number])


def declare(model: ir.Model, feeds: Mapping[str, Any]) -> None:
    """Give a model's inputs the types and shapes of what they are fed, where they are unknown."""
    for value in model.graph.inputs:
        array = feeds.get(value.name or "")
        if not isinstance(array, np.ndarray):
            continue
        if value.type is None:
            value.type = ir.TensorType(_element(array.dtype))
        if value.shape is None:
            value.shape = ir.Shape(array.shape)


def _element(dtype: np.dtype[Any]) -> ir.DataType:
    return ir.DataType.STRING if dtype.kind in "OSUT" else ir.DataType.from_numpy(dtype)


def _taken(values: Any) -> list[ir.Value]:
    """Return the values of a graph's list after the graph gave them up."""
    found = list(values)
    values.clear()
    return found
