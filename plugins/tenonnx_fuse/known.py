"""What is known of values before a model runs: constants, element types, ranks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx_ir as ir

from tenonnx import HOST, Weight, WeightTensor
from tenonnx.graph import attribute as attribute

SAME_TYPE = frozenset(
    {
        "Abs", "Add", "AveragePool", "BatchNormalization", "Ceil", "Clip", "Concat", "Conv",
        "ConvTranspose", "Cos", "Div", "Dropout", "Elu", "Erf", "Exp", "Expand", "Flatten",
        "Floor", "Gather", "GatherElements", "GatherND", "Gelu", "Gemm", "GlobalAveragePool",
        "HardSigmoid", "HardSwish", "Identity", "LayerNormalization", "LeakyRelu", "Log",
        "LogSoftmax", "MatMul", "Max", "MaxPool", "Min", "Mul", "Neg", "Pad", "Pow",
        "RMSNormalization", "Reciprocal", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceSum",
        "Relu", "Reshape", "Resize", "Sigmoid", "Sign", "Sin", "Slice", "Softmax", "Softplus",
        "Split", "Sqrt", "Squeeze", "Sub", "Sum", "Tanh", "Tile", "Transpose", "Unsqueeze",
    }
)  # fmt: skip
"""Operators whose first output has the element type of their first input."""

SAME_RANK = frozenset(
    {
        "Abs", "Attention", "AveragePool", "BatchNormalization", "Cast", "Ceil", "Clip", "Concat",
        "Conv", "ConvTranspose", "Cos", "CumSum", "DequantizeLinear", "Dropout", "Elu", "Erf",
        "Exp", "Floor", "GatherElements", "Gelu", "GlobalAveragePool", "GroupNormalization",
        "HardSigmoid", "HardSwish", "Identity", "InstanceNormalization", "IsNaN",
        "LayerNormalization", "LeakyRelu", "Log", "LogSoftmax", "MaxPool", "Neg", "Not", "PRelu",
        "Pad", "QuantizeLinear", "RMSNormalization", "Reciprocal", "Relu", "Resize",
        "ScatterElements", "ScatterND", "Sigmoid", "Sign", "Sin", "Slice", "Softmax", "Softplus",
        "Split", "Sqrt", "Swish", "Tanh", "TfIdfVectorizer", "Tile", "Transpose", "Trilu",
    }
)  # fmt: skip
"""Operators whose outputs have the rank of their first input."""

BROADCASTING = frozenset(
    {"Add", "And", "Div", "Max", "Min", "Mul", "Or", "Pow", "Sub", "Sum", "Where"}
)

CLASSICAL = "ai.onnx.ml"

SHAPE_KEEPING = frozenset(
    {
        "Abs", "Cast", "Ceil", "Clip", "Dropout", "Elu", "Erf", "Exp", "Floor", "Gelu",
        "HardSigmoid", "HardSwish", "Identity", "LayerNormalization", "LeakyRelu", "Log",
        "LogSoftmax", "Neg", "RMSNormalization", "Reciprocal", "Relu", "Sigmoid", "Softmax",
        "Softplus", "Sqrt", "Swish", "Tanh",
    }
)  # fmt: skip
"""Operators whose result has their first input's shape."""

KEEPING = frozenset({"Binarizer", "Imputer"})
"""Operators of ai.onnx.ml that keep type and rank."""

SAME_FEATURES = KEEPING | {"Normalizer", "Scaler"}
"""Operators of ai.onnx.ml whose last axis is as long as that of their input."""

FEATURES = frozenset({"FeatureVectorizer", "OneHotEncoder", "Normalizer", "Scaler"})
MODELS = frozenset(
    {
        "LinearClassifier", "LinearRegressor", "SVMClassifier", "SVMRegressor",
        "TreeEnsembleClassifier", "TreeEnsembleRegressor",
    }
)  # fmt: skip
"""Operators of ai.onnx.ml whose last output is of float32; that of ``MODELS`` is a matrix."""

MICROSOFT = {
    "Attention": 1, "BiasGelu": 0, "EmbedLayerNormalization": 2, "FastGelu": 0, "Gelu": 0,
    "MultiHeadAttention": 0, "QuickGelu": 0, "SkipLayerNormalization": 2,
    "SkipSimplifiedLayerNormalization": 2,
}  # fmt: skip
"""Operators of com.microsoft whose first output has the rank of their first input, and which input
has its type. Embeddings have three axes, and lengths beside them."""

RANK = "tenonnx_fuse.rank"
"""Where a value remembers its rank; ``None`` if it is not known."""

MAX_DEPTH = 40
"""Nodes that are followed backwards; exporters leave most values with their types."""


def weight_of(value: ir.Value | None) -> Weight | None:
    """Returns the weight that a value is; ``None`` if it is made by a run, or may be replaced."""
    if value is None or not value.is_initializer() or value.is_graph_input():
        return None
    tensor = value.const_value
    return tensor.weight if isinstance(tensor, WeightTensor) else None


def array_of(value: ir.Value | None) -> np.ndarray[Any, Any] | None:
    """Returns the constant that a value is, on the host."""
    weight = weight_of(value)
    return None if weight is None else weight.on(HOST)


def number_of(value: ir.Value | None) -> float | None:
    """Returns the one real number that a value is, whatever happens; ``None`` if it is none."""
    weight = weight_of(value)
    if weight is None or len(weight.shape) > 1 or weight.shape not in ((), (1,)):
        return None
    array = weight.on(HOST)
    is_real = array.dtype.kind in "fiu" or weight.dtype == ir.DataType.BFLOAT16
    return float(array.reshape(-1)[0]) if is_real else None


def integers_of(value: ir.Value | None) -> tuple[int, ...] | None:
    """Returns the constant list of integers that a value is, such as a shape or axes."""
    array = array_of(value)
    if array is None or array.dtype.kind not in "iu" or array.ndim > 1 or array.size > 64:
        return None
    return tuple(int(number) for number in array.reshape(-1))


def operand(node: ir.Node, position: int) -> ir.Value | None:
    """Returns an input; ``None`` if it is absent or the node has not so many."""
    return node.inputs[position] if position < len(node.inputs) else None


def permutation(node: ir.Node) -> tuple[int, ...] | None:
    """Returns where a Transpose takes its axes from; ``None`` if it does not say, or nonsense."""
    given = attribute(node, "perm", None)
    if given is not None:
        return tuple(given) if sorted(given) == list(range(len(given))) else None
    rank = rank_of(operand(node, 0))
    return None if rank is None else tuple(reversed(range(rank)))


def dtype_of(value: ir.Value | None, depth: int = MAX_DEPTH) -> ir.DataType | None:
    """Returns a value's element type, as the model says or as it follows."""
    if value is None or depth == 0:
        return None
    if value.const_value is not None:
        return value.const_value.dtype
    if value.dtype is not None and value.dtype != ir.DataType.UNDEFINED:
        return value.dtype
    node = value.producer()
    if node is None:
        return None
    if node.domain == CLASSICAL and node.op_type in FEATURES | MODELS:
        return ir.DataType.FLOAT if value.index() == len(node.outputs) - 1 else None
    if node.domain == CLASSICAL and node.op_type in KEEPING:
        return dtype_of(operand(node, 0), depth - 1)
    if node.domain == "com.microsoft" and node.op_type in MICROSOFT:
        typed = operand(node, MICROSOFT[node.op_type])
        return dtype_of(typed, depth - 1) if value.index() == 0 else None
    if node.domain:
        return None
    if node.op_type == "TfIdfVectorizer":
        return ir.DataType.FLOAT
    if node.op_type == "Cast":
        return cast_type(node)
    if node.op_type not in SAME_TYPE or node.outputs[0] is not value:
        return None
    if node.op_type == "MatMul" and weight_of(weights := operand(node, 1)) is not None:
        return dtype_of(weights)
    return dtype_of(operand(node, 0), depth - 1)


def features_of(value: ir.Value | None) -> int | None:
    """Returns how long the last axis of a value is, as the model says or as it follows."""
    for _ in range(MAX_DEPTH):
        if value is None:
            return None
        if value.shape is not None and len(value.shape) and isinstance(value.shape[-1], int):
            return int(value.shape[-1])
        node = value.producer()
        if node is None:
            return None
        if node.op_type == "FeatureVectorizer" and node.domain == CLASSICAL:
            return sum(attribute(node, "inputdimensions", ())) or None
        if node.op_type == "Gather" and attribute(node, "axis", 0) == -1 and not node.domain:
            columns = operand(node, 1)
            places = None if columns is None else columns.shape
            single = places is not None and len(places) == 1 and isinstance(places[0], int)
            return int(places[0]) if places is not None and single else None  # type: ignore[arg-type]  # it is
        if node.domain != CLASSICAL or node.op_type not in SAME_FEATURES:
            return None
        value = operand(node, 0)
    return None


def cast_type(node: ir.Node) -> ir.DataType | None:
    """Returns the type that a Cast makes, if there is one of its number, or before 6 its name."""
    to = attribute(node, "to", 0)
    try:
        return ir.DataType[to] if isinstance(to, str) else ir.DataType(to)
    except (KeyError, ValueError):
        return None


def rank_of(value: ir.Value | None) -> int | None:
    """Returns a value's rank, as it follows or else as the model says.

    What is found is remembered: a value is looked at once, however deep the graph and whoever asks.
    """
    if value is None:
        return None
    waiting = [value]
    while waiting:
        last = waiting[-1]
        node = None if _is_told(last) else last.producer()
        if node is not None and (before := [v for v in _deciding(node) if not _is_told(v)]):
            waiting += before
            continue
        if node is not None:
            rank = _rank_made(node) if last is node.outputs[0] else _rank_beside(node)
            said = None if last.shape is None else len(last.shape)
            last.meta[RANK] = said if rank is None else rank
        waiting.pop()
    return _told(value)


def _is_told(value: ir.Value) -> bool:
    return value.const_value is not None or RANK in value.meta or value.producer() is None


def _told(value: ir.Value | None) -> int | None:
    """Returns a rank that is known without looking further."""
    if value is None:
        return None
    if value.const_value is not None:
        return len(value.const_value.shape)
    rank: int | None = value.meta.get(RANK)
    if rank is not None:
        return rank
    return None if value.shape is None else len(value.shape)


def _deciding(node: ir.Node) -> Iterator[ir.Value]:
    """Yields the inputs whose ranks decide that of a node's outputs."""
    if node.domain == CLASSICAL and node.op_type in FEATURES | KEEPING:
        yield from (value for value in node.inputs[:1] if value is not None)
    if node.domain == "com.microsoft" and node.op_type in MICROSOFT:
        yield from (value for value in node.inputs[:1] if value is not None)
    if node.domain:
        return
    if node.op_type in SAME_RANK or node.op_type in ("Squeeze", "Unsqueeze") or _reduces(node):
        decide = node.inputs[:1]
    elif node.op_type in BROADCASTING or node.op_type in ("Gather", "MatMul"):
        decide = node.inputs
    else:
        return
    yield from (value for value in decide if value is not None and value.producer() is not None)


def _length(shape: ir.Value) -> int | None:
    """Returns how many elements a shape has."""
    constant = integers_of(shape)
    if constant is not None:
        return len(constant)
    if shape.shape is not None and len(shape.shape) == 1 and isinstance(shape.shape[0], int):
        return int(shape.shape[0])
    node = shape.producer()
    if node is None or node.domain or node.op_type not in ("Concat", "Unsqueeze"):
        return None
    if node.op_type == "Unsqueeze":
        return 1
    lengths = [None if part is None else _length(part) for part in node.inputs]
    known = [length for length in lengths if length is not None]
    return sum(known) if len(known) == len(lengths) else None


def _count_axes(node: ir.Node) -> int | None:
    """Returns how many axes an Unsqueeze adds; below zero, what a Squeeze takes away."""
    axes = attribute(node, "axes", None)
    if len(node.inputs) > 1:
        axes = integers_of(operand(node, 1))
    if axes is None:
        return None
    return len(axes) if node.op_type == "Unsqueeze" else -len(axes)


def _rank_made(node: ir.Node) -> int | None:
    """Returns the rank of what a node makes, by the ranks that are known of its inputs."""
    kind = node.op_type
    if node.domain == "com.microsoft" and kind in MICROSOFT:
        return 3 if kind == "EmbedLayerNormalization" else _told(operand(node, 0))
    if node.domain:
        return _rank_of_features(node) if node.domain == CLASSICAL else None
    if kind == "Transpose" and "perm" in node.attributes:
        return len(node.attributes["perm"].as_ints())
    if kind in ("Flatten", "Gemm"):
        return 2
    if kind == "Reshape":
        shape = operand(node, 1) if len(node.inputs) > 1 else None
        return None if shape is None else _length(shape)
    if kind in ("Squeeze", "Unsqueeze"):
        count, rank = _count_axes(node), _told(operand(node, 0))
        return None if rank is None or count is None else rank + count
    if kind in ("Range", "Shape"):
        return 1
    if kind in SAME_RANK or _reduces(node):
        return _told(operand(node, 0))
    if kind not in BROADCASTING and kind not in ("Gather", "MatMul"):
        return None
    ranks = [_told(value) for value in node.inputs]
    found = [rank for rank in ranks if rank is not None]
    if not found or len(found) < len(ranks) or (kind == "MatMul" and 1 in found):
        return None
    return sum(found) - 1 if kind == "Gather" else max(found)


def _rank_beside(node: ir.Node) -> int | None:
    """Returns the rank of a node's outputs after the first one."""
    if node.op_type == "EmbedLayerNormalization":
        return 1
    others = ("Attention", "BatchNormalization", *MICROSOFT)
    return None if node.op_type in others else _rank_made(node)


def _reduces(node: ir.Node) -> bool:
    """Says whether a node reduces axes and keeps them."""
    kind = node.op_type
    return kind.startswith("Reduce") and attribute(node, "keepdims", 1) == 1


def _rank_of_features(node: ir.Node) -> int | None:
    if node.op_type in MODELS:
        return 2 if node.op_type.endswith("Regressor") else None
    rank = _told(operand(node, 0))
    if node.op_type == "OneHotEncoder" and rank is not None:
        return rank + 1
    if node.op_type == "FeatureVectorizer":
        return 2
    return rank if node.op_type in FEATURES | KEEPING else None
