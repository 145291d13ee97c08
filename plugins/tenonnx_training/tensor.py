"""Values whose arithmetic adds nodes, so that derivatives read like formulas."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import onnx_ir as ir

# The opset version of the new nodes, whatever the model's is.
OPSET = 21


@dataclass(frozen=True)
class Tensor:
    """A value, and the graph that new nodes are appended to."""

    graph: ir.Graph
    value: ir.Value

    def __add__(self, other: Tensor) -> Tensor:
        return self.apply("Add", other)

    def __sub__(self, other: Tensor) -> Tensor:
        return self.apply("Sub", other)

    def __mul__(self, other: Tensor) -> Tensor:
        return self.apply("Mul", other)

    def __truediv__(self, other: Tensor) -> Tensor:
        return self.apply("Div", other)

    def __pow__(self, other: Tensor) -> Tensor:
        return self.apply("Pow", other)

    def __neg__(self) -> Tensor:
        return self.apply("Neg")

    def apply(
        self, op_type: str, *others: Tensor, version: int = OPSET, **attributes: Any
    ) -> Tensor:
        """Return the output of a new node whose first input is this value."""
        inputs = [self.value, *(other.value for other in others)]
        node = ir.node(op_type, inputs, attributes, version=version)
        self.graph.append(node)
        return Tensor(self.graph, node.outputs[0])

    def number(self, number: float) -> Tensor:
        """Return a scalar of this value's element type."""
        return self._constant(value_float=float(number)).apply("CastLike", self)

    def full(self, number: float) -> Tensor:
        """Return a tensor of this value's shape and element type."""
        return self.number(number).apply("Expand", self.shape)

    def _constant(self, **form: Any) -> Tensor:
        node = ir.node("Constant", [], form, version=OPSET)
        self.graph.append(node)
        return Tensor(self.graph, node.outputs[0])

    @property
    def shape(self) -> Tensor:
        """The value's shape, a tensor of int64."""
        return self.apply("Shape")

    @property
    def rank(self) -> int | None:
        """The number of dimensions, if the graph declares it."""
        return None if self.value.shape is None else len(self.value.shape)

    def sum(self, axis: int) -> Tensor:
        """Return the sums along an axis, which is kept with size 1."""
        return self.apply("ReduceSum", self._constant(value_ints=[axis]), keepdims=1)

    def reshape(self, shape: Tensor) -> Tensor:
        """Return the same elements in another shape; zeros in it are sizes, not wildcards."""
        return self.apply("Reshape", shape, allowzero=1)

    def sum_to(self, other: Tensor) -> Tensor:
        """Return the sums over the axes along which ``other`` was broadcast to this shape."""
        mine, its = self.value.shape, other.value.shape
        if mine is not None and mine == its and mine.is_static():
            return self
        wide, narrow = self.shape, other.shape
        one = ir.tensor([1])
        missing = wide.apply("Shape") - narrow.apply("Shape")
        padded = missing.apply("ConstantOfShape", value=one).apply("Concat", narrow, axis=0)
        stretched = padded.apply("Equal", wide).apply("Not").apply("NonZero")
        axes = stretched.apply("Squeeze", self._constant(value_ints=[0]))
        return self.apply("ReduceSum", axes, keepdims=1, noop_with_empty_axes=1).reshape(narrow)
