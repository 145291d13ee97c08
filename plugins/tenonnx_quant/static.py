"""QuantizeLinear and DequantizeLinear around operators, by ranges that calibration data has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import onnx_ir as ir

from tenonnx import InvalidArgument
from tenonnx.formats.convert import Progress
from tenonnx.graph import attribute
from tenonnx_quant.calibrate import Method, Range, calibrate
from tenonnx_quant.choosing import ALSO_QUANTIZED, ALWAYS_QUANTIZED, MOVERS, Choice, choose
from tenonnx_quant.feeds import Feeds
from tenonnx_quant.opset import at_least
from tenonnx_quant.rounding import TYPES, Integers
from tenonnx_quant.selection import Selection, is_scaled, is_weight
from tenonnx_quant.stored import (
    StoredWeight,
    by_channel,
    constant,
    deferred,
    dequantized,
    forget_unread,
)

EVERYTHING: Final = Selection((*ALWAYS_QUANTIZED, *ALSO_QUANTIZED, *MOVERS))


@dataclass(frozen=True)
class StaticScheme:
    """The scheme that quantizes weights and activations, both to 8 bits.

    Attributes:
        method: How ranges are found: ``minmax``, ``percentile`` or ``entropy``.
        percentile: The share of numbers, in percent, that ``percentile`` keeps.
        per_channel: Whether every channel of a weight has a scale of its own.
        symmetric: Whether activations have no zero point, which halves the range of those that
            are never negative.
        signed: Whether activations are int8 or uint8; weights are int8.
        selection: Which operators take part.
    """

    method: Method = "minmax"
    percentile: float = 99.999
    per_channel: bool = True
    symmetric: bool = False
    signed: bool = True
    selection: Selection = EVERYTHING

    def __post_init__(self) -> None:
        if not 50 < self.percentile <= 100:
            raise InvalidArgument(f"a percentile lies between 50 and 100, {self.percentile} not")


def quantize_static(
    model: ir.Model, feeds: Feeds | None, scheme: StaticScheme, progress: Progress
) -> tuple[ir.Model, int]:
    """Put quantized values between a model's operators; return the model and their number.

    Raises:
        InvalidArgument: There is no data, the selection names what cannot be quantized, or there
            is nothing.
        NotSupported: The model cannot be brought to the opset that is needed.
    """
    if feeds is None:
        raise InvalidArgument(
            "static quantization finds ranges on calibration data, and there is none",
            hint="give data (--data FILE), or quantize dynamically (--mode dynamic)",
        )
    scheme.selection.refuse_unknown(model, (*ALWAYS_QUANTIZED, *ALSO_QUANTIZED, *MOVERS))
    half = any(value.dtype == ir.DataType.FLOAT16 for value in model.graph.inputs)
    # QuantizeLinear has an axis from 13 on, and takes float16 from 19 on.
    model = at_least(model, 19 if half else 13)
    choice = choose(model.graph, scheme.selection)
    if not choice.products:
        raise InvalidArgument(
            "the model has nothing to quantize: none of the operators that are selected",
            hint="`tenonnx inspect MODEL` lists operators",
        )
    names = [value.name or "" for value in choice.roots]
    ranges = calibrate(model, names, feeds, scheme.method, scheme.percentile, progress)
    writer = Writer(model.graph, choice, ranges, scheme)
    writer.quantize_activations()
    for node in choice.products:
        writer.quantize_constants(node)
    return model, writer.count


class Writer:
    """The writer of the nodes and constants.

    Args:
        graph: The graph.
        choice: What to quantize.
        ranges: By name of the activation.
        scheme: How.

    Attributes:
        count: Operators that read quantized values.
    """

    def __init__(
        self, graph: ir.Graph, choice: Choice, ranges: dict[str, Range], scheme: StaticScheme
    ) -> None:
        self.graph, self.choice, self.ranges, self.scheme = graph, choice, ranges, scheme
        self.kind = Integers(8, scheme.signed, scheme.symmetric)
        self._parameters: dict[ir.Value, tuple[ir.Value, ir.Value]] = {}
        self._weights: dict[tuple[ir.Value, int | None], tuple[StoredWeight, ir.Value]] = {}
        self.count = sum(
            any(v in choice.quantized and choice.quantized[v].name in ranges for v in node.inputs)
            for node in choice.readers
        )

    def quantize_activations(self) -> None:
        """Quantize every chosen value once, behind what makes it, for all that are to read it."""
        for value, root in self.choice.quantized.items():
            if root.name not in self.ranges:
                continue
            readers = [
                (node, index)
                for node, index in value.uses()
                if value in self.choice.finished or node in self.choice.readers
            ]
            if not readers:
                continue
            scale, zero = self._parameters_of(root)
            quantize = ir.node("QuantizeLinear", [value, scale, zero], name=f"{value.name}.q")
            quantize.outputs[0].name = f"{value.name}.quantized"
            dequantize = dequantized(value, [*quantize.outputs, scale, zero])
            producer = value.producer()
            if producer is None:
                self.graph.insert_before(self.graph[0], (quantize, dequantize))
            else:
                self.graph.insert_after(producer, (quantize, dequantize))
            for node, index in readers:
                node.replace_input_with(index, dequantize.outputs[0])

    def _parameters_of(self, root: ir.Value) -> tuple[ir.Value, ir.Value]:
        if root not in self._parameters:
            found = self.ranges[root.name or ""]
            low, high = np.array(found.low), np.array(found.high)
            scale, zero = self.kind.parameters(low, high, found.dtype)
            integer_type = TYPES[8, self.scheme.signed][1]
            pair = (
                constant(f"{root.name}.scale", scale.astype(found.dtype)),
                constant(f"{root.name}.zero_point", zero.astype(integer_type)),
            )
            for value in pair:
                self.graph.register_initializer(value)
            self._parameters[root] = pair
        return self._parameters[root]

    def quantize_constants(self, node: ir.Node) -> None:
        """Quantize a product's weight to int8 and, if it has one, its bias to int32."""
        weight = node.inputs[1]
        source = node.inputs[0].producer() if node.inputs[0] is not None else None
        if not is_weight(weight) or source is None or source.op_type != "DequantizeLinear":
            return
        assert weight is not None
        axis = self._axis(node, weight)
        stored, result = self._weight(weight, axis)
        node.replace_input_with(1, result)
        if len(node.inputs) > 2:
            self._quantize_bias(node, source.inputs[1], stored, axis)
        forget_unread(self.graph, weight)

    def _axis(self, node: ir.Node, weight: ir.Value) -> int | None:
        assert weight.const_value is not None
        # A ConvTranspose's weight is [C, M/group, ...]: with groups no axis of it has one element
        # for each channel of the result.
        if not self.scheme.per_channel or node.op_type == "ConvTranspose":
            return None
        if node.op_type == "Conv":
            return 0
        if len(weight.const_value.shape) != 2:
            return None
        return 0 if node.op_type == "Gemm" and attribute(node, "transB", 0) else 1

    def _weight(self, weight: ir.Value, axis: int | None) -> tuple[StoredWeight, ir.Value]:
        key = weight, axis
        if key not in self._weights:
            stored = by_channel(self.graph, weight, axis)
            attributes = {} if axis is None else {"axis": axis}
            dequantize = dequantized(weight, stored.parts, **attributes)
            self.graph.insert_before(self.graph[0], dequantize)
            self._weights[key] = stored, dequantize.outputs[0]
        return self._weights[key]

    def _quantize_bias(
        self, node: ir.Node, scale: ir.Value | None, stored: StoredWeight, axis: int | None
    ) -> None:
        """Store a bias in steps of both scales' product, as sums of integers are."""
        bias = node.inputs[2]
        tensor = bias.const_value if bias is not None and bias.is_initializer() else None
        if tensor is None or bias is None or len(tensor.shape) != 1 or scale is None:
            return
        # Alpha and beta would change the step of the sum and of the bias.
        if node.op_type == "Gemm" and is_scaled(node):
            return
        assert scale.const_value is not None
        # In float64: a bias of 2**31 steps has more digits than float32.
        x_scale = scale.const_value.numpy().astype(np.float64)
        step = (x_scale * stored.scales()[0].reshape(-1)).astype(np.float32)
        step = step[0] if axis is None else step
        exact = np.rint(tensor.numpy().astype(np.float64) / step)
        bound = np.iinfo(np.int32)
        integers = np.clip(exact, bound.min, bound.max).astype(np.int32)
        name = f"{node.name or node.outputs[0].name}.bias"
        parts = [
            deferred(f"{name}.quantized", ir.DataType.INT32, integers.shape, lambda: integers),
            constant(f"{name}.scale", step.astype(tensor.dtype.numpy())),
        ]
        for value in parts:
            self.graph.register_initializer(value)
        attributes = {} if axis is None else {"axis": 0}
        dequantize = ir.node("DequantizeLinear", parts, attributes, name=f"{name}.dq")
        dequantize.outputs[0].name = f"{name}.dequantized"
        self.graph.insert_before(node, dequantize)
        node.replace_input_with(2, dequantize.outputs[0])
        forget_unread(self.graph, bias)
