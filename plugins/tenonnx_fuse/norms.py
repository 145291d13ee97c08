"""Layer and root-mean-square normalization, which older exporters write out."""

from __future__ import annotations

import onnx_ir as ir

from tenonnx import TransformContext
from tenonnx.graph.dtypes import dtype_of
from tenonnx.graph.sizes import integers_of, last_of, operand, rank_of
from tenonnx_fuse.known import attribute, weight_of
from tenonnx_fuse.pattern import AnyNumber, Like, Match, Pattern, Vector, either, let, op, optional
from tenonnx_fuse.rewrite import Rule, rewriting

# Types that are normalized in float32: the operators' ``stash_type``, unless a node says
# otherwise.
STASHED_TYPES = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16)


def _keeps_last_axis(node: ir.Node) -> str | None:
    axes = attribute(node, "axes", None)
    if len(node.inputs) > 1:
        axes = integers_of(operand(node, 1))
    rank = rank_of(operand(node, 0))
    last = (-1,) if rank is None else (-1, rank - 1)
    if axes is None or len(axes) != 1 or axes[0] not in last:
        return f"averages over {'all axes' if axes is None else list(axes)}, not the last one"
    return None if attribute(node, "keepdims", 1) else "drops the axis it averages over"


def _mean(x: Like) -> Pattern:
    return op("ReduceMean", x, where=_keeps_last_axis, more=True)


def _deviation(square: Pattern) -> Pattern:
    return op("Sqrt", op("Add", _mean(square), AnyNumber("epsilon")))


def _square(x: str) -> Pattern:
    return either(op("Pow", x, 2.0), op("Mul", x, x))


def _divided(x: Pattern, by: Pattern) -> Pattern:
    """``x / by``, at once or by way of its reciprocal."""
    inverse = either(op("Reciprocal", by), op("Div", 1.0, by))
    return either(op("Div", x, by), op("Mul", x, inverse))


CENTERED = let("centered", op("Sub", "x", _mean("x")))
LAYER = _divided(
    CENTERED, _deviation(either(op("Pow", CENTERED, 2.0), op("Mul", CENTERED, CENTERED)))
)
LAYER_SCALED = op("Mul", LAYER, Vector("scale"))
LAYER_SHIFTED = op("Add", LAYER_SCALED, Vector("bias"))
RMS = _divided(either("x"), _deviation(_square("x")))
RMS_SCALED = op("Mul", optional("Cast", RMS), Vector("scale"))


def _inputs(found: Match) -> tuple[ir.Value, ir.Value] | str:
    """Return what is normalized, and the scale; or why the operators do something else."""
    x, scale = found.values["x"], found.values["scale"]
    dtype = dtype_of(scale)
    casts = [node for node in found.nodes if node.op_type == "Cast"]
    maker = x.producer()
    if casts:
        # Narrow floats that are widened for this alone: the operators do that by themselves.
        if maker is None or maker.op_type != "Cast" or maker.domain:
            return f"the result is cast to {dtype} and '{x.name}' is not"
        narrow = operand(maker, 0)
        if narrow is None or dtype_of(narrow) != dtype or attribute(casts[0], "to", 0) != dtype:
            return "it is cast to another type than it came from"
        x = narrow
    if dtype not in STASHED_TYPES:
        return f"the operator computes in float32, and this is {dtype}"
    width = last_of(x)
    for name in ("scale", "bias"):
        vector = weight_of(found.values.get(name))
        if vector is not None and vector.shape != (width,):
            return f"'{x.name}' is not known to be as long as its {name}, {vector.shape[0]}"
    return x, scale


def _layer_norm(found: Match, _: TransformContext) -> list[ir.Node] | str:
    given = _inputs(found)
    if isinstance(given, str):
        return given
    bias = found.values.get("bias")
    inputs = [*given, *([] if bias is None else [bias])]
    attributes = {"axis": -1, "epsilon": found.numbers["epsilon"]}
    return [ir.node("LayerNormalization", inputs, attributes, version=17)]


def _rms_norm(found: Match, _: TransformContext) -> list[ir.Node] | str:
    given = _inputs(found)
    if isinstance(given, str):
        return given
    attributes = {"axis": -1, "epsilon": found.numbers["epsilon"]}
    return [ir.node("RMSNormalization", given, attributes, version=23)]


OF_LAYER = ("ReduceMean", "Sub")

layer_norm = rewriting(
    Rule("LayerNormalization", LAYER_SHIFTED, _layer_norm, enough=4, needs=OF_LAYER),
    Rule("LayerNormalization", LAYER_SCALED, _layer_norm, enough=4, needs=OF_LAYER),
)
rms_norm = rewriting(
    Rule("RMSNormalization", RMS_SCALED, _rms_norm, enough=5, needs=("ReduceMean", "Sqrt"))
)
