"""A convolution, a sum and an activation as one node, for providers that want it so."""

from __future__ import annotations

import onnx_ir as ir

from tenonnx import TransformContext
from tenonnx_fuse.known import attribute, number_of
from tenonnx_fuse.pattern import Found, either, op
from tenonnx_fuse.rewrite import Rule, rewriting

PARAMETERS: dict[str, tuple[tuple[str, float], ...]] = {
    "Relu": (),
    "Tanh": (),
    "Sigmoid": (),
    "LeakyRelu": (("alpha", 0.01),),
    "HardSigmoid": (("alpha", 0.2), ("beta", 0.5)),
    "HardSwish": (),
}
"""Attributes of activations, with defaults, in the order in which the operator takes them."""


def _fused_conv(found: Found, _: TransformContext) -> list[ir.Node] | str:
    last = found.last
    conv = next(node for node in found.nodes if node.op_type == "Conv")
    parameters: list[float] = []
    if last.op_type == "Clip":
        bounds = [number_of(value) for value in last.inputs[1:]]
        if len(bounds) != 2 or None in bounds:
            return "its bounds are not two constants"
        parameters = [float(bound) for bound in bounds if bound is not None]
    elif last.op_type != "Add":
        parameters = [float(attribute(last, *known)) for known in PARAMETERS[last.op_type]]
    added = {"activation": "" if last.op_type == "Add" else last.op_type}
    attributes = [*conv.attributes.values(), *ir.convenience.convert_attributes(added)]
    if parameters:
        attributes += ir.convenience.convert_attributes({"activation_params": parameters})
    inputs = list(conv.inputs)
    if (more := found.values.get("z")) is not None:
        inputs = [*[*inputs, None][:3], more]
    return [ir.Node("com.microsoft", "FusedConv", inputs, attributes, num_outputs=1, version=1)]


def _shared(conv: ir.Node) -> str | None:
    """Says what is wrong with a convolution whose result is read twice: it is made anyhow."""
    return "is read elsewhere too" if len(conv.outputs[0].uses()) > 1 else None


CONV = op("Conv", "x", "w", where=_shared, more=True)
SUM = op("Add", CONV, "z")
conv_activation = rewriting(
    Rule("FusedConv", op((*PARAMETERS, "Clip"), either(SUM, CONV), more=True), _fused_conv,
         needs=("Conv",)),
    Rule("FusedConv", SUM, _fused_conv, needs=("Conv", "Add")),
)  # fmt: skip
