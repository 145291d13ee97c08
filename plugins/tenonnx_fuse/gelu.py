"""The GELU family, which exporters write as products of Erf, Tanh, Sigmoid and Clip."""

from __future__ import annotations

import math

import onnx_ir as ir

from tenonnx import TransformContext
from tenonnx.graph.dtypes import dtype_of
from tenonnx.graph.sizes import rank_of
from tenonnx_fuse.known import attribute, number_of, weight_of
from tenonnx_fuse.pattern import AnyNumber, Like, Match, Op, Pattern, either, op
from tenonnx_fuse.rewrite import Rule, rewriting

FLOAT_TYPES = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16, ir.DataType.DOUBLE)

ROOT = math.sqrt(0.5)
SLOPE = math.sqrt(2 / math.pi)
CUBIC = 0.044715


def _thirds(a: Like, b: Like, c: Like) -> tuple[Op, ...]:
    """The product of three things, in any order."""
    return (
        op("Mul", op("Mul", a, b), c),
        op("Mul", op("Mul", a, c), b),
        op("Mul", a, op("Mul", b, c)),
    )


ERF = op("Add", op("Erf", either(op("Div", "x", 1 / ROOT), op("Mul", "x", ROOT))), 1.0)
CUBE = either(op("Pow", "x", 3.0), op("Mul", op("Mul", "x", "x"), "x"))
ARGUMENT: Pattern = either(
    op("Mul", op("Add", "x", op("Mul", CUBE, CUBIC)), SLOPE),
    *_thirds("x", SLOPE, op("Add", either(*_thirds("x", "x", CUBIC)), 1.0)),
)
TANH = op("Add", op("Tanh", ARGUMENT), 1.0)
QUICK = op("Mul", "x", op("Sigmoid", either(op("Mul", "x", AnyNumber("alpha")), "x")))
SIX = op("Clip", op("Add", "x", 3.0), 0.0, 6.0)
SIXTH = op("Mul", SIX, 1 / 6), op("Div", SIX, 6.0)
HARD = (
    *(op("Mul", op("Mul", "x", SIX), 1 / 6), op("Div", op("Mul", "x", SIX), 6.0)),
    *(op("Mul", "x", sixth) for sixth in SIXTH),
)


def _is_swish(node: ir.Node) -> str | None:
    """Return why a HardSigmoid is not the one of HardSwish, whose slope exporters round."""
    slope, middle = attribute(node, "alpha", 0.2), attribute(node, "beta", 0.5)
    fits = math.isclose(slope, 1 / 6, rel_tol=1e-6) and math.isclose(middle, 0.5, rel_tol=1e-6)
    return None if fits else f"has the slope {slope:g} and {middle:g} in the middle"


GATED = op("Mul", "x", op("HardSigmoid", "x", where=_is_swish))


def _unfit(found: Match) -> str | None:
    """Return why an operator of x alone is not what nodes with numbers compute."""
    numbers = [
        value for node in found.nodes for value in node.inputs if number_of(value) is not None
    ]
    if any(dtype_of(value) not in FLOAT_TYPES for value in numbers if value is not None):
        return "its numbers are no floats"
    x, weights = found.values["x"], map(weight_of, numbers)
    if any(weight is not None and weight.shape for weight in weights) and not rank_of(x):
        return f"'{x.name}' is not known to have an axis, and numbers have one"
    return None


def _gelu(found: Match, _: TransformContext) -> list[ir.Node] | str:
    if why := _unfit(found):
        return why
    tanh = any(each.op_type == "Tanh" for each in found.nodes)
    attributes = {"approximate": "tanh" if tanh else "none"}
    return [ir.node("Gelu", [found.values["x"]], attributes, version=20)]


def _swish(found: Match, _: TransformContext) -> list[ir.Node] | str:
    alpha = found.numbers.get("alpha", 1.0)
    if weight_of(found.values["x"]) is not None:
        return "it is of a constant"
    if why := _unfit(found):
        return why
    return [ir.node("Swish", [found.values["x"]], {"alpha": alpha}, version=24)]


def _hard_sigmoid(found: Match, _: TransformContext) -> list[ir.Node] | str:
    if why := _unfit(found):
        return why
    attributes = {"alpha": 1 / 6, "beta": 0.5}
    return [ir.node("HardSigmoid", [found.values["x"]], attributes, version=6)]


def _hard_swish(found: Match, _: TransformContext) -> list[ir.Node] | str:
    return _unfit(found) or [ir.node("HardSwish", [found.values["x"]], version=14)]


gelu = rewriting(
    *(Rule("Gelu", p, _gelu, 4, needs=("Erf",)) for p in _thirds("x", ERF, 0.5)),
    *(Rule("Gelu of tanh", p, _gelu, 4, needs=("Tanh",)) for p in _thirds("x", TANH, 0.5)),
)
swish = rewriting(Rule("Swish", QUICK, _swish, needs=("Sigmoid",)))
hard_swish = rewriting(
    *(Rule("HardSwish", p, _hard_swish, needs=("Clip",)) for p in HARD),
    Rule("HardSwish", GATED, _hard_swish, needs=("HardSigmoid",)),
    *(Rule("HardSigmoid", p, _hard_sigmoid, needs=("Clip",)) for p in SIXTH),
)
