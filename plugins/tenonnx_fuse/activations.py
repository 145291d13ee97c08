"""A convolution and its activation as one node, for providers that want it so."""

from __future__ import annotations

import onnx_ir as ir

from tenonnx import TransformContext
from tenonnx_fuse.known import attribute, number_of, operand
from tenonnx_fuse.pattern import Found, op
from tenonnx_fuse.rewrite import Rule, rewriting

PARAMETERS: dict[str, tuple[tuple[str, float], ...]] = {
    "Relu": (),
    "Tanh": (),
    "Sigmoid": (),
    "LeakyRelu": (("alpha", 0.01),),
    "HardSigmoid": (("alpha", 0.2), ("beta", 0.5)),
}
"""Attributes of activations, with defaults, in the order in which the operator takes them."""


def _fused_conv(found: Found, _: TransformContext) -> list[ir.Node] | str:
    activation = found.last
    first = operand(activation, 0)
    conv = None if first is None else first.producer()
    assert conv is not None
    if activation.op_type == "Clip":
        bounds = [number_of(value) for value in activation.inputs[1:]]
        if len(bounds) != 2 or None in bounds:
            return "its bounds are not two constants"
        parameters = [float(bound) for bound in bounds if bound is not None]
    else:
        known = PARAMETERS[activation.op_type]
        parameters = [float(attribute(activation, *parameter)) for parameter in known]
    added = {"activation": activation.op_type}
    attributes = [*conv.attributes.values(), *ir.convenience.convert_attributes(added)]
    if parameters:
        attributes += ir.convenience.convert_attributes({"activation_params": parameters})
    new = ir.Node("com.microsoft", "FusedConv", conv.inputs, attributes, num_outputs=1, version=1)
    return [new]


CONV = op("Conv", "x", "w", more=True)
conv_activation = rewriting(
    Rule("FusedConv", op((*PARAMETERS, "Clip"), CONV, more=True), _fused_conv, needs=("Conv",))
)
