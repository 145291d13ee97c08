"""Attention, which exporters write as a product, its softmax and the product of that."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from tenonnx import HOST, TransformContext
from tenonnx.graph import graphs
from tenonnx.graph.dtypes import dtype_of
from tenonnx.graph.sizes import operand, rank_of
from tenonnx_fuse.bypass import sweep
from tenonnx_fuse.heads import size_of, unrepeated, unturned
from tenonnx_fuse.known import array_of, attribute, permutation
from tenonnx_fuse.pattern import (
    AnyNumber,
    Like,
    Match,
    Pattern,
    either,
    let,
    op,
    optional,
)
from tenonnx_fuse.rewrite import Rule, rewriting
from tenonnx_fuse.subexpressions import share

# A fill of at most this is replaced by the least number where attention can only add to scores.
ABSORBED_BY = -1e4

# Types whose least number is equal to its sum with a score, in float32.
ABSORBING = (ir.DataType.FLOAT, ir.DataType.BFLOAT16)


def _over_last(node: ir.Node) -> str | None:
    axis = attribute(node, "axis", -1 if (node.version or 1) >= 13 else 1)
    rank = rank_of(operand(node, 0))
    return None if axis == -1 or (rank and axis == rank - 1) else f"is over axis {axis}"


def _swaps_last(node: ir.Node) -> str | None:
    order = permutation(node)
    swaps = ((0, 1, 3, 2), (0, 2, 3, 1), (0, 2, 1))
    return None if order in swaps else f"moves the axes to {order}"


def _scaled(x: Like, name: str) -> Pattern:
    """``x``, or ``x`` times or divided by a number."""
    return either(
        op("Mul", x, AnyNumber(f"{name} *")), op("Div", x, AnyNumber(f"{name} /")), x
    )  # fmt: skip


def _swaps_inner(node: ir.Node) -> str | None:
    order = permutation(node)
    return None if order == (0, 2, 1) else f"moves the axes to {order}"


TRANSPOSED_KEYS = either(
    op("Transpose", _scaled("keys", "inner key"), where=_swaps_last),
    op("Reshape", op("Transpose", op("Reshape", "keys", more=True), where=_swaps_inner), more=True),
    "crossed",
)
PRODUCT = op("MatMul", _scaled("queries", "query"), _scaled(let("turned", TRANSPOSED_KEYS), "key"))
SCALED_PRODUCT = _scaled(PRODUCT, "scores")
SCORES = either(
    op("Mul", op("Tanh", _scaled(SCALED_PRODUCT, "inner")), AnyNumber("cap")), SCALED_PRODUCT
)
MASKED = either(
    op("Add", op("Add", SCORES, "mask"), "second mask"),
    op("Add", SCORES, "mask"),
    op("Where", "kept", SCORES, let("fill", AnyNumber("fill"))),
    op("Where", "hidden", let("fill", AnyNumber("fill")), SCORES),
    SCORES,
)
SHARES = let("shares", op("Softmax", optional("Cast", MASKED), where=_over_last))
SAFE = either(SHARES, op("Where", op("IsNaN", SHARES), 0.0, SHARES))
ATTENDED = op("MatMul", either(SAFE, op("Cast", SAFE), op("Cast", op("Cast", SAFE))), "values")


def _scale(found: Match) -> float | str:
    scale = 1.0
    for name, number in found.numbers.items():
        if name.endswith("/"):
            if number == 0:
                return "scores are divided by zero"
            scale /= number
        elif name.endswith("*"):
            scale *= number
    return scale * found.numbers.get("cap", 1.0)


def _attributes(found: Match) -> dict[str, Any] | str:
    scale = _scale(found)
    if isinstance(scale, str):
        return scale
    attributes: dict[str, Any] = {"scale": scale}
    if "cap" in found.numbers:  # c * tanh(x / d) is the operator's cap of x * c / d
        attributes["softcap"] = found.numbers["cap"]
        if attributes["softcap"] <= 0:
            return f"scores are capped by {attributes['softcap']:g}"
    return attributes


def _mask(
    found: Match, context: TransformContext
) -> tuple[list[ir.Node], ir.Value | None, float | None] | str:
    """Return the summand of scores, the nodes that make it, and the score of hidden keys.

    That score is ``None`` if hidden keys have their sum, too.
    """
    values = found.values
    if "fill" not in values and "second mask" in values:
        both = ir.node("Add", [values["mask"], values["second mask"]], version=14)
        return [both], both.outputs[0], None
    if "fill" not in values:
        return [], values.get("mask"), None
    fill, hidden = found.numbers["fill"], -np.inf
    dtype, shape = dtype_of(values["fill"]), np.asarray(array_of(values["fill"])).shape
    if math.isnan(fill):
        return "scores that are hidden are not numbers"
    guarded = _is_guarded(context)
    if not guarded and fill != -np.inf:
        if fill > ABSORBED_BY:
            return f"scores that are hidden become {fill:g}, which still counts"
        if dtype in ABSORBING:
            hidden = float(np.finfo(np.float32).min)
        elif _sees(values) or not context.options.optimized_model_filepath:
            hidden = fill
        else:
            return f"a query that sees no key weighs all alike, which adding {fill:g} does not"
    constants = [
        ir.node("Constant", [], {"value": ir.tensor(number, dtype=dtype)}, version=13)
        for number in (np.full(shape, n).tolist() for n in (0.0, hidden))
    ]
    branches = [constant.outputs[0] for constant in constants]
    condition = values.get("kept") or values["hidden"]
    if "hidden" in values:
        branches.reverse()
    added = ir.node("Where", [condition, *branches], version=16)
    added.outputs[0].shape = condition.shape if condition.shape else None
    return [*constants, added], added.outputs[0], fill if guarded else None


def _is_guarded(context: TransformContext) -> bool:
    """Return whether kernels look at shapes as they run, and do what nodes do of any others."""
    on_host = all(provider.device is HOST for provider in context.providers)
    return on_host and not context.options.optimized_model_filepath


def _sees(values: dict[str, ir.Value]) -> bool:
    """Return whether every query is known to see a key."""
    kept, hidden = array_of(values.get("kept")), array_of(values.get("hidden"))
    seen = kept if hidden is None else ~hidden
    return seen is not None and seen.ndim > 0 and bool(seen.any(axis=-1).all())


def _attention(found: Match, context: TransformContext) -> Sequence[ir.Node] | str:
    queries, values = found.values["queries"], found.values["values"]
    guarded = _is_guarded(context)
    for name, value in (("queries", queries), ("values", values)):
        rank = rank_of(value)
        if rank != 4 and not (guarded and rank in (None, 3)):
            found_rank = "an unknown number of" if rank is None else str(rank)
            return f"the {name} '{value.name}' have {found_rank} axes, not 4"
    if dtype_of(queries) == ir.DataType.DOUBLE:
        return "it is in float64"
    attributes, masking = _attributes(found), _mask(found, context)
    if isinstance(attributes, str):
        return attributes
    if isinstance(masking, str):
        return masking
    new, mask, fill = masking
    if fill is not None:
        attributes["_fill"] = fill
    whole, (values, more) = values, unrepeated(values)
    straight = _keys(found, new)
    if straight is None or straight[1] != more:
        if not guarded:
            return "keys are not known to be values' heads, turned and nothing else"
        straight, values = _turned(found.values["turned"], new), whole
        if straight is None:
            return f"the keys '{found.values['turned'].name}' have an unknown number of axes"
    keys, repeated = straight
    if context.options.optimized_model_filepath:
        if why := _unlike(queries, keys, values, mask):
            return f"the model is to be saved, and {why}"
    else:
        # Shapes that the nodes broadcast and the operator refuses are checked at run time.
        safe = any(node.op_type == "IsNaN" for node in found.nodes)
        attributes["_written"] = [repeated, int(safe)]
    inputs = [queries, keys, values, *([] if mask is None else [mask])]
    new.append(ir.node("Attention", inputs, attributes, num_outputs=1, version=23))
    return new


def _keys(found: Match, new: list[ir.Node]) -> tuple[ir.Value, int] | None:
    """Return keys as (batch, heads, length, size), and how often heads were repeated."""
    keys, turn = found.values.get("keys"), found.values["turned"].producer()
    if keys is None or turn is None:
        return None
    if turn.op_type == "Reshape":
        return unturned(keys, turn)
    if permutation(turn) in ((0, 1, 3, 2), (0, 2, 1)):
        return unrepeated(keys)
    # A value of (batch, length, heads, size) is transposed too, to another order.
    turned = ir.node("Transpose", [keys], {"perm": [0, 2, 1, 3]}, version=turn.version)
    new.append(turned)
    return turned.outputs[0], 1


def _turned(crossed: ir.Value, new: list[ir.Node]) -> tuple[ir.Value, int] | None:
    """Return keys whose last two axes are exchanged as ``_keys`` does."""
    rank = rank_of(crossed)
    if rank not in (3, 4):
        return None
    order = [*range(rank - 2), rank - 1, rank - 2]
    new.append(ir.node("Transpose", [crossed], {"perm": order}, version=13))
    return new[-1].outputs[0], 1


def _unlike(*values: ir.Value | None) -> str | None:
    """Return whether queries, keys, values or a mask may be broadcast in another way than heads."""
    *operands, mask = values
    sizes = [[size_of(value, axis) for axis in range(4)] for value in operands if value is not None]
    batches, (_, *heads) = {each[0] for each in sizes}, [each[1] for each in sizes]
    if len(batches) > 1 or len({*heads}) > 1:
        return "the batches or heads of queries, keys and values may differ"
    rank = rank_of(mask)
    if mask is not None and (rank is None or not 0 < rank <= 4):
        return "the mask is not known to have up to four axes"
    if mask is not None and rank is not None and size_of(mask, -1) != sizes[1][2]:
        return "the mask is not known to have a number for every key"
    return None


_rewrite = rewriting(Rule("Attention", ATTENDED, _attention, enough=2, needs=("Softmax",)))


def attention(model: ir.Model, context: TransformContext) -> bool:
    """Find attention; masks that are made for it are made once for all layers."""
    modified = _rewrite(model, context)
    if modified:
        for graph in graphs(model):
            sweep(graph)
            share(graph)
    return modified
