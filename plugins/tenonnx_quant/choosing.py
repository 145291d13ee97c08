"""The choice of a graph's activations to quantize, and of their readers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import onnx_ir as ir

from tenonnx_quant.selection import Selection

# Operators that gain from quantizing: their inputs are always quantized.
ALWAYS_QUANTIZED: Final = ("Conv", "ConvTranspose", "MatMul", "Gemm")

# Quantized too where everything that they read is quantized already.
ALSO_QUANTIZED: Final = ("Add", "Mul", "Concat", "AveragePool", "GlobalAveragePool")

# Their output has the numbers of their input, and so its scale.
MOVERS: Final = (
    "MaxPool", "Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze", "Slice", "DepthToSpace",
    "SpaceToDepth",
)  # fmt: skip


@dataclass
class Choice:
    """The values to quantize in a graph.

    Attributes:
        quantized: Values, each with the one whose range it has: itself, but behind a mover.
        readers: Nodes that are to read quantized values.
        finished: Values that all are to read quantized, as integer kernels write nothing else.
        products: The products among the readers.
    """

    quantized: dict[ir.Value, ir.Value] = field(default_factory=dict)
    readers: set[ir.Node] = field(default_factory=set)
    finished: set[ir.Value] = field(default_factory=set)
    products: list[ir.Node] = field(default_factory=list)

    @property
    def roots(self) -> list[ir.Value]:
        """The values whose ranges are wanted."""
        return list(dict.fromkeys(self.quantized.values()))

    def take(self, value: ir.Value, root: ir.Value | None = None) -> None:
        """Quantize a value, unless it is so already."""
        self.quantized.setdefault(value, self.quantized.get(root, root) if root else value)

    def finish(self, value: ir.Value) -> None:
        """Quantize a value for all its readers; one that leaves the graph stays as it is."""
        if not value.is_graph_output():
            self.take(value)
            self.finished.add(value)


def choose(graph: ir.Graph, selection: Selection) -> Choice:
    """Return what to quantize: products first, then what only passes on what they read or write.

    A bias that is added, or a Relu, right behind a product is its own: the value behind it is
    quantized and the one between stays as it is.
    """
    choice = Choice()
    for node in graph:
        if selection.takes(node) and node.op_type in ALWAYS_QUANTIZED and _is_product(node):
            choice.products.append(node)
            choice.readers.add(node)
            for value in _activations(node):
                choice.take(value)
            if node.op_type.startswith("Conv"):
                choice.finish(_end(node))
    for node in graph:
        if not selection.takes(node) or node.op_type in ALWAYS_QUANTIZED:
            continue
        if node.op_type in MOVERS:
            _pass_on(node, choice)
        elif node.op_type in ALSO_QUANTIZED and _is_surrounded(node, choice):
            choice.readers.add(node)
            for value in _activations(node):
                choice.take(value)
            choice.finish(_end(node))
    return choice


def _is_product(node: ir.Node) -> bool:
    weight = node.inputs[1]
    assert weight is not None
    return weight.dtype is None or weight.dtype in (ir.DataType.FLOAT, ir.DataType.FLOAT16)


def _activations(node: ir.Node) -> list[ir.Value]:
    """Return what a node reads that is no constant; of a product, no bias either."""
    inputs = node.inputs[:2] if node.op_type in ALWAYS_QUANTIZED else node.inputs
    return [v for v in inputs if v is not None and v.const_value is None]


def _pass_on(node: ir.Node, choice: Choice) -> None:
    source, result = node.inputs[0], node.outputs[0]
    if source in choice.quantized and not result.is_graph_output():
        assert source is not None
        choice.readers.add(node)
        # A reader may have asked for the result with a range of its own.
        choice.quantized[result] = choice.quantized[source]
        choice.finished.add(result)


def _is_surrounded(node: ir.Node, choice: Choice) -> bool:
    activations = _activations(node)
    sources = [value.producer() for value in activations]
    quantized = all(
        value in choice.quantized or (source is not None and source in choice.readers)
        for value, source in zip(activations, sources, strict=True)
    )
    whole = len(activations) == sum(value is not None for value in node.inputs)
    return bool(activations) and whole and quantized


def _end(node: ir.Node) -> ir.Value:
    """Return a node's output behind the bias and the activation that are its own."""
    value = node.outputs[0]
    while len(value.uses()) == 1 and not value.is_graph_output():
        (reader, _), *_ = value.uses()
        others = [v for v in reader.inputs if v is not None and v is not value]
        constants = all(v.const_value is not None for v in others)
        own = reader.op_type in ("Relu", "Clip") and constants
        own |= reader.op_type == "Add" and constants and _is_flat(others)
        if reader.domain != "" or reader.graph is not node.graph or not own:
            break
        value = reader.outputs[0]
    return value


def _is_flat(values: list[ir.Value]) -> bool:
    return all(v.shape is not None and sum(size != 1 for size in v.shape) <= 1 for v in values)
