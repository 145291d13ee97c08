"""The lengths of values' axes, as they follow before a model runs.

Transforms need the sizes of single values, most of which files do not declare. Results are cached.
They follow from the inputs, which runs check, and from weights; declared sizes of results are used
only where nothing follows. ``tenonnx.graph.inference`` answers for whole models. This module is
public: plug-ins of others may import it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from tenonnx.graph import array_of, attribute, constant_of
from tenonnx.graph.traits import BROADCASTING, REDUCTIONS, UNARY

if TYPE_CHECKING:
    import onnx_ir as ir

# Of the axes, `None` if not known; `ANY` ahead if there may be more axes before them.
Sizes: TypeAlias = tuple[int | None, ...]

ANY: Final = -1
UNKNOWN: Final[Sizes] = (ANY,)

# The key under which a value remembers its sizes.
SIZES: Final = "tenonnx.graph.sizes"

CLASSICAL: Final = "ai.onnx.ml"

# Elements of a constant that is taken for a shape, or for axes.
MAX_SHAPE_ELEMENTS: Final = 64

# Return the sizes of a node's first output, by those of its inputs.
Rule: TypeAlias = Callable[["ir.Node", Sequence[Sizes]], Sizes]


def operand(node: ir.Node, position: int) -> ir.Value | None:
    """Return an input; ``None`` if it is absent or the node has not so many."""
    return node.inputs[position] if position < len(node.inputs) else None


def integers_of(value: ir.Value | None) -> tuple[int, ...] | None:
    """Return the constant list of integers that a value is, such as a shape or axes."""
    tensor = constant_of(value)
    if tensor is None or len(tensor.shape) > 1 or tensor.size > MAX_SHAPE_ELEMENTS:
        return None
    array = array_of(tensor)
    return tuple(map(int, array.reshape(-1))) if array.dtype.kind in "iu" else None


def forget(value: ir.Value) -> None:
    """Have a value whose axes were changed looked at anew."""
    value.meta.pop(SIZES, None)


def rank_of(value: ir.Value | None) -> int | None:
    """Return how many axes a value has, as it follows or else as the model says."""
    if value is None:
        return None
    sizes = sizes_of(value)
    if not _is_open(sizes):
        return len(sizes)
    return None if value.shape is None else len(value.shape)


def last_of(value: ir.Value | None) -> int | None:
    """Return how long a value's last axis is, as it follows or else as the model says."""
    if value is None:
        return None
    last = next(iter(sizes_of(value)[::-1]), None)
    if last not in (None, ANY):
        return last
    said = value.shape[-1] if value.shape is not None and len(value.shape) else None
    return said if isinstance(said, int) else None


def sizes_of(value: ir.Value | None) -> Sizes:
    """Return the sizes that a value has if its model runs."""
    if value is None:
        return UNKNOWN
    waiting = [value]
    while waiting:
        last = waiting[-1]
        node = None if SIZES in last.meta else last.producer()
        rule = None if node is None else SIZE_RULES.get((node.domain, node.op_type))
        given = [] if node is None or rule is None else node.inputs
        if before := [v for v in given if v is not None and SIZES not in v.meta]:
            waiting += before
            continue
        if SIZES not in last.meta:
            last.meta[SIZES] = _made(last, node, rule)
        waiting.pop()
    found: Sizes = value.meta[SIZES]
    return found


def _made(value: ir.Value, node: ir.Node | None, rule: Rule | None) -> Sizes:
    tensor = value.const_value
    if node is not None and node.op_type == "Constant" and not node.domain:
        tensor = attribute(node, "value", None)
    shape = value.shape if tensor is None else tensor.shape
    sizes = UNKNOWN if shape is None else tuple(s if isinstance(s, int) else None for s in shape)
    if tensor is not None or node is None:
        return sizes
    # Of results a file is believed how many axes they have, no more, where nothing follows.
    sizes = _any_sizes(sizes)
    if rule is None or not node.inputs:
        return sizes
    given = [UNKNOWN if v is None else v.meta[SIZES] for v in node.inputs]
    made = rule(node, [*given, UNKNOWN])
    if node.outputs[0] is not value:
        has_others = node.domain or node.op_type in ("Attention", "BatchNormalization")
        made = UNKNOWN if has_others else _any_sizes(made)
    return sizes if made == UNKNOWN else made


def _is_open(sizes: Sizes) -> bool:
    return sizes[:1] == UNKNOWN


def _any_sizes(sizes: Sizes) -> Sizes:
    return UNKNOWN if _is_open(sizes) else (None,) * len(sizes)


def _first(_: ir.Node, given: Sequence[Sizes]) -> Sizes:
    return given[0]


def _same_rank(_: ir.Node, given: Sequence[Sizes]) -> Sizes:
    return _any_sizes(given[0])


def _broadcasting(node: ir.Node, given: Sequence[Sizes]) -> Sizes:
    # Before opset 7 attributes said how the second input is broadcast to the first.
    return given[0] if "axis" in node.attributes else broadcast(given[: len(node.inputs)])


def broadcast(given: Sequence[Sizes]) -> Sizes:
    """Return what sizes broadcast to, or the run refuses."""
    lines = [sizes[::-1] if not _is_open(sizes) else sizes[:0:-1] for sizes in given]
    fills = [1 if not _is_open(sizes) else None for sizes in given]
    made: list[int | None] = []
    for axis in range(max(map(len, lines))):
        column = [
            line[axis] if axis < len(line) else fill
            for line, fill in zip(lines, fills, strict=True)
        ]
        longer = (size for size in column if size is not None and size != 1)
        # A size above 1 is the result's size.
        made.append(next(longer, None if None in column else 1))
    ahead = UNKNOWN if None in fills else ()
    return (*ahead, *made[::-1])


def _product(_: ir.Node, given: Sequence[Sizes]) -> Sizes:
    a, b = given[:2]
    if _is_open(b):
        return UNKNOWN
    if _is_open(a) or len(a) < 2 or len(b) < 2:
        return (ANY, b[-1]) if len(b) > 1 else UNKNOWN
    return (*broadcast([a[:-2], b[:-2]]), a[-2], b[-1])


def _gemm(node: ir.Node, given: Sequence[Sizes]) -> Sizes:
    made: list[int | None] = []
    for side, sizes in enumerate(given[:2]):
        turned = bool(attribute(node, f"trans{'AB'[side]}", 0))
        made.append(None if _is_open(sizes) or len(sizes) != 2 else sizes[side ^ turned])
    return tuple(made)


def _gathered(node: ir.Node, given: Sequence[Sizes]) -> Sizes:
    data, places = given[:2]
    axis = attribute(node, "axis", 0)
    if axis == -1 and not _is_open(places):
        return (*(UNKNOWN if data == UNKNOWN else data[:-1]), *places)
    if _is_open(data) or not -len(data) <= axis < len(data):
        return UNKNOWN
    axis %= len(data)
    if _is_open(places):
        return (ANY, *data[axis + 1 :]) if axis == 0 else UNKNOWN
    return (*data[:axis], *places, *data[axis + 1 :])


def _sizes_from_operand(node: ir.Node, given: Sequence[Sizes]) -> Sizes:
    """Return the sizes that a node's second input says."""
    told = integers_of(operand(node, 1))
    if told is not None:
        return tuple(size if size > 0 else None for size in told)
    count = given[1][0] if len(given[1]) == 1 else None
    return UNKNOWN if count is None or count == ANY else (None,) * count


def _reshaped(node: ir.Node, given: Sequence[Sizes]) -> Sizes:
    said = attribute(node, "shape", None)  # before opset 5
    if said is not None:
        return (None,) * len(said)
    told, x = integers_of(operand(node, 1)), given[0]
    if told is None or _is_open(x):
        return _sizes_from_operand(node, given)
    zero_copies = not attribute(node, "allowzero", 0)
    copied = [*x, *[None] * len(told)]
    made = [
        size if size > 0 else copied[axis] if size == 0 and zero_copies else None
        for axis, size in enumerate(told)
    ]
    rest = [size for axis, size in enumerate(made) if told[axis] != -1]
    if told.count(-1) == 1 and None not in x and None not in rest:
        count, others = math.prod(filter(None, x)), math.prod(filter(None, rest))
        if 0 not in x and count % others == 0:  # else the run refuses, or there is nothing
            made[told.index(-1)] = count // others
    return tuple(made)


def _expanded(node: ir.Node, given: Sequence[Sizes]) -> Sizes:
    return broadcast([given[0], _sizes_from_operand(node, given)])


def _axes(node: ir.Node) -> tuple[int, ...] | None:
    return integers_of(operand(node, 1)) or attribute(node, "axes", None)


def _unsqueezed(node: ir.Node, given: Sequence[Sizes]) -> Sizes:
    x, axes = given[0], _axes(node)
    if axes is None or _is_open(x):
        return UNKNOWN
    rank = len(x) + len(axes)
    places = {axis % rank for axis in axes if -rank <= axis < rank}
    old = iter(x)
    made = tuple(1 if axis in places else next(old, None) for axis in range(rank))
    return made if len(places) == len(axes) else UNKNOWN  # the run refuses such axes


def _squeezed(node: ir.Node, given: Sequence[Sizes]) -> Sizes:
    x, axes = given[0], _axes(node)
    if axes is None or _is_open(x):
        return UNKNOWN
    gone = {axis % len(x) for axis in axes} if x else set[int]()
    return tuple(size for axis, size in enumerate(x) if axis not in gone)


def _transposed(node: ir.Node, given: Sequence[Sizes]) -> Sizes:
    x, order = given[0], attribute(node, "perm", None)
    if order is None:
        return UNKNOWN if _is_open(x) else x[::-1]
    is_order = not _is_open(x) and sorted(order) == list(range(len(x)))
    return tuple(x[axis] if is_order else None for axis in order)


def _joined(node: ir.Node, given: Sequence[Sizes]) -> Sizes:
    first, along = given[0], attribute(node, "axis", 1)
    given = given[: len(node.inputs)]
    if _is_open(first) or not -len(first) <= along < len(first):
        return UNKNOWN
    if any(_is_open(sizes) or len(sizes) != len(first) for sizes in given):
        return _any_sizes(first)
    made = [next((s for s in column if s is not None), None) for column in zip(*given, strict=True)]
    lengths = [sizes[along] for sizes in given]
    made[along] = None if None in lengths else sum(filter(None, lengths))
    return tuple(made)


def _convolved(_: ir.Node, given: Sequence[Sizes]) -> Sizes:
    x, w = given[:2]
    if _is_open(x) or _is_open(w) or len(x) != len(w):
        return _any_sizes(x)
    return (x[0], w[0], *[None] * (len(w) - 2))


def _attended(_: ir.Node, given: Sequence[Sizes]) -> Sizes:
    """Return the sizes of heads apart: those of queries, and the last of values."""
    q, v = given[0], given[2] if len(given) > 2 else UNKNOWN
    if _is_open(q) or len(q) != 4 or len(v) != 4:
        return _any_sizes(q)
    return (*q[:3], v[3])


def _reduced(node: ir.Node, given: Sequence[Sizes]) -> Sizes:
    return _any_sizes(given[0]) if attribute(node, "keepdims", 1) == 1 else UNKNOWN


def _columns(*names: str) -> Rule:
    """Rows, and as many columns as an attribute says."""

    def rule(node: ir.Node, given: Sequence[Sizes]) -> Sizes:
        side = 1 if len(names) > 1 and attribute(node, "transposed", 0) else 0
        count = int(attribute(node, names[side], 0)) or None
        return (*(UNKNOWN if _is_open(given[0]) else given[0][:-1]), count)

    return rule


def _ranked(rank: int) -> Rule:
    return lambda *_: (None,) * rank


def _features(node: ir.Node, _: Sequence[Sizes]) -> Sizes:
    return None, sum(attribute(node, "inputdimensions", ())) or None


def _named(rules: Mapping[str, Rule], domain: str = "") -> dict[tuple[str, str], Rule]:
    return {(domain, name): rule for names, rule in rules.items() for name in names.split()}


# The results of ONNX's own inference for a node where it is fast, and of rules that it lacks.
SIZE_RULES: Final[Mapping[tuple[str, str], Rule]] = {
    **_named(dict.fromkeys(UNARY, _first) | dict.fromkeys(BROADCASTING, _broadcasting)),
    **_named(dict.fromkeys(REDUCTIONS, _reduced)),
    **_named({
        "BatchNormalization CumSum DequantizeLinear Dropout GroupNormalization LogSoftmax": _first,
        "InstanceNormalization LayerNormalization QuantizeLinear RMSNormalization": _first,
        "ScatterElements ScatterND Softmax Trilu": _first,
        "AveragePool ConvTranspose GatherElements GlobalAveragePool": _same_rank,
        "GlobalMaxPool MaxPool Pad Resize Slice Split TfIdfVectorizer Tile": _same_rank,
        "Attention": _attended,
        "Concat": _joined,
        "Expand": _expanded,
        "Conv": _convolved,
        "Flatten": _ranked(2),
        "Gather": _gathered,
        "Gemm": _gemm,
        "MatMul": _product,
        "Range Shape": _ranked(1),
        "Reshape": _reshaped,
        "Squeeze": _squeezed,
        "Transpose": _transposed,
        "Unsqueeze": _unsqueezed,
    }),
    **_named({
        "BiasGelu FastGelu Gelu QuickGelu": _first,
        "SkipLayerNormalization SkipSimplifiedLayerNormalization": _first,
        "Attention MultiHeadAttention": _same_rank,
        "EmbedLayerNormalization": _ranked(3),
        "MatMulNBits": _columns("N"),
    }, "com.microsoft"),
    **_named({"DequantizeMatMul": _columns("columns", "rows")}, "ai.tenonnx"),
    **_named({
        "Binarizer Imputer Normalizer Scaler": _first,
        "FeatureVectorizer": _features,
        "LinearRegressor SVMRegressor TreeEnsembleRegressor": _ranked(2),
        "OneHotEncoder": lambda _, given: (*given[0], None),
    }, CLASSICAL),
}  # fmt: skip
