"""Constant folding whose results are registry weights.

A folded Transpose, Reshape, Slice or Expand is a view of its source and costs nothing. A result
that needs memory is computed once per process, or read from the registry's cache.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from tenonnx import HOST, TransformContext, Weight, WeightTensor
from tenonnx.graph import constant_of, graphs, has_bodies, label, python_attributes, replace_uses
from tenonnx.graph.traits import RANDOM
from tenonnx.process.interruption import Stopped
from tenonnx.weights.digest import digest
from tenonnx_fold.pieces import in_pieces

# Random operators draw anew in every run; kernels read quantized weights as they are.
NEVER_FOLDED = RANDOM | {"DequantizeLinear", "QuantizeLinear"}

# Operators whose kernels read scales and biases as numbers; their DequantizeLinear is folded.
NORMALIZATIONS = frozenset(
    {
        "BatchNormalization", "GroupNormalization", "InstanceNormalization", "LayerNormalization",
        "RMSNormalization", "SimplifiedLayerNormalization",
    }
)  # fmt: skip

# A result may need this many bytes more than its sources have, unless the session's options say
# otherwise; Tile or ConstantOfShape of a few numbers could fill the memory.
MAX_GROWTH = 1 << 20

# Bytes that may be computed in vain, where the result turns out to be too large to keep.
MAX_WASTED_BYTES = 64 << 20

# The widest element: complex128.
MAX_ELEMENT_BYTES = 16

# All results together may have so many bytes for each of the model's weights...
MAX_COPIES = 8

# ...or those of so many results of the largest growth, if that is more; what each result adds is
# little where each is made of the one before.
MAX_RESULTS = 64

GROWTH_KEY = "optimization.constant_folding_max_output_size_in_bytes"


class Grows(Exception):
    """A result would need more memory than folding it is worth."""

    def __init__(self, nbytes: int) -> None:
        super().__init__(nbytes)
        self.nbytes = nbytes


class Unfit(Exception):
    """A result is no tensor, or no host provider computes it."""


@dataclass
class Budget:
    """The most bytes that folding makes.

    Attributes:
        growth: The most bytes of one result beyond its sources.
        left: The most bytes of all remaining results.
    """

    growth: int
    left: int

    def limit(self, sources: Iterable[Weight]) -> int:
        """Return what a result may have that is made of some weights, each counted once."""
        return min(self.left, sum(weight.nbytes for weight in set(sources)) + self.growth)


def fold_constants(model: ir.Model, context: TransformContext) -> bool:
    """Replace every node whose inputs are all constant by its result."""
    entry = context.option(GROWTH_KEY)
    growth = MAX_GROWTH if entry is None else int(entry)
    inside = graphs(model)
    tensors = (v.const_value for graph in inside for v in graph.initializers.values())
    stored = sum(tensor.nbytes for tensor in tensors if isinstance(tensor, WeightTensor))
    budget = Budget(growth, max(MAX_COPIES * stored, MAX_RESULTS * growth))
    folded = [_fold_graph(graph, context, budget) for graph in inside]
    return any(folded)


def _fold_graph(graph: ir.Graph, context: TransformContext, budget: Budget) -> bool:
    folded: list[ir.Node] = []
    constants: dict[ir.Value, ir.Value] = {}
    for node in graph:
        if not _is_foldable(node):
            continue
        weights = [None if v is None else _weight(v, context) for v in node.inputs]
        if (results := _fold(node, weights, context, budget)) is not None:
            constants.update(_registered(graph, node, results))
            folded.append(node)
            sources = {weight.storage for weight in weights if weight is not None}
            budget.left -= sum(w.nbytes for w in results if w.storage not in sources)
    if folded:
        # At once: onnx_ir looks at all outputs of the graph for each that it replaces or removes.
        graph.outputs[:] = [constants.get(output, output) for output in graph.outputs]
        graph.remove(folded, safe=True)
    return bool(folded)


def _is_foldable(node: ir.Node) -> bool:
    if (node.op_type in NEVER_FOLDED and not _is_of_norms(node)) or not node.inputs:
        return False
    constant = all(value is None or _is_constant(value) for value in node.inputs)
    return constant and not has_bodies(node)


def _is_of_norms(node: ir.Node) -> bool:
    """Return whether normalizations alone read what a node dequantizes."""
    uses = node.outputs[0].uses() if node.op_type == "DequantizeLinear" else ()
    return bool(uses) and all(use.idx > 0 and use.node.op_type in NORMALIZATIONS for use in uses)


def _is_constant(value: ir.Value) -> bool:
    tensor = constant_of(value)
    return tensor is not None and tensor.dtype != ir.DataType.STRING


def _weight(value: ir.Value, context: TransformContext) -> Weight:
    tensor = value.const_value
    if isinstance(tensor, WeightTensor):
        return tensor.weight
    assert tensor is not None
    content = tensor.numpy()
    key = f"inline:{tensor.dtype.name}:{tuple(content.shape)}:{digest(content.tobytes())}"
    return context.weights.derive(key, lambda: content, dtype=tensor.dtype)


def _refuse_growth(node: ir.Node, inputs: list[np.ndarray[Any, Any] | None], limit: int) -> None:
    """Raise ``Grows`` if a result will be too large to be made in vain."""
    sizes = [array.size for array in inputs if array is not None]
    if math.prod(max(1, size) for size in sizes) <= MAX_WASTED_BYTES // MAX_ELEMENT_BYTES:
        return
    from tenonnx_fold.growth import predicted_bytes

    if (nbytes := predicted_bytes(node, inputs)) > max(limit, MAX_WASTED_BYTES):
        raise Grows(nbytes)


def _fold(
    node: ir.Node, weights: list[Weight | None], context: TransformContext, budget: Budget
) -> list[Weight] | None:
    """Return a weight per output; ``None`` if the node is better left as it is."""
    sources = [weight for weight in weights if weight is not None]
    limit = budget.limit(sources)
    computed: list[Any] = []

    def compute() -> list[Any]:
        if not computed:
            inputs = [None if weight is None else weight.on(HOST) for weight in weights]
            _refuse_growth(node, inputs, limit)
            with np.errstate(all="ignore"):
                results = context.evaluate(node, inputs, limit)
            if results is None or not all(isinstance(r, (np.ndarray, np.generic)) for r in results):
                raise Unfit
            computed.extend(map(np.asarray, results))
        return computed

    def build(position: int) -> np.ndarray[Any, Any]:
        result: np.ndarray[Any, Any] = compute()[position]
        if result.nbytes > limit and not any(
            np.may_share_memory(result, weight.array) for weight in sources
        ):
            raise Grows(result.nbytes)
        return result

    key = _key(node, weights)
    try:
        if (pieces := in_pieces(node, weights, context)) is not None:
            if pieces.nbytes > limit:
                raise Grows(pieces.nbytes)
            result = pieces.dtype, pieces.shape, pieces.fill
            return [context.weights.materialize(f"{key}:0", *result, sources)]
        return [
            context.weights.derive(f"{key}:{position}", lambda p=position: build(p), sources)  # type: ignore[misc]
            for position in range(len(node.outputs))
        ]
    except Grows as grows:
        context.notes.append(
            f"left {label(node)} to the run: its result has {grows.nbytes:,} bytes, at most "
            f"{limit:,} are folded"
        )
        return None
    except Stopped:
        raise
    except Exception:
        # The run will meet the same error and name the node; a branch that never runs must not.
        return None


def _key(node: ir.Node, weights: list[Weight | None]) -> str:
    """Name the computation: the same operator, attributes and sources give the same result."""
    attributes = sorted(python_attributes(node).items(), key=lambda item: item[0])
    parts = [node.domain, node.op_type, str(node.version), *_texts(attributes)]
    parts += ("" if weight is None else weight.key for weight in weights)
    return "fold:" + digest("\0".join(parts))


def _texts(attributes: list[tuple[str, Any]]) -> Iterator[str]:
    for name, value in attributes:
        array = isinstance(value, np.ndarray)
        yield f"{name}={digest(value.tobytes()) if array else value!r}"


def _registered(graph: ir.Graph, node: ir.Node, weights: list[Weight]) -> dict[ir.Value, ir.Value]:
    """Replace a node's outputs by initializers; return the initializer of each output."""
    constants = {}
    for output, weight in zip(node.outputs, weights, strict=True):
        if not output.name:
            continue
        name, output.name = output.name, None
        value = constants[output] = ir.Value(
            name=name,
            shape=ir.Shape(weight.shape),
            type=ir.TensorType(weight.dtype),
            const_value=WeightTensor(weight, name=name),
        )
        graph.register_initializer(value)
        replace_uses(output, value)
    return constants
