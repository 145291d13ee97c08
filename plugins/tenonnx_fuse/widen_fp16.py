"""Subgraphs of 16-bit floats between casts, computed in float32, which hosts are made for."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from tenonnx import HOST, TransformContext
from tenonnx.graph import FACTORS_KEY, graphs, replace_input
from tenonnx.graph.dtypes import binding, dtype_of, said_type
from tenonnx.graph.sizes import operand
from tenonnx.graph.traits import ELEMENTWISE, REDUCTIONS, VIEWS
from tenonnx_fuse.bypass import bypass
from tenonnx_fuse.constants import derived
from tenonnx_fuse.known import attribute, weight_of

NARROW = (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)

CONVOLUTIONS = frozenset({"Conv", "ConvTranspose"})

# Operators whose weights are widened with them, of any size.
WEIGHTED = CONVOLUTIONS | {"GRU", "LSTM", "RNN"}

# Operators that take 16-bit floats as they take float32, or in less time.
FAST_IN_16_BITS = VIEWS | REDUCTIONS | frozenset(
    {
        "Abs", "Add", "Ceil", "Clip", "Concat", "DepthToSpace", "Div", "Expand", "Floor", "Max",
        "LayerNormalization", "Min", "Mul", "Neg", "Pad", "RMSNormalization", "Reciprocal", "Relu",
        "Round", "Sign", "SimplifiedLayerNormalization", "Slice", "SpaceToDepth", "Split", "Sqrt",
        "Sub", "Transpose", "Where",
    }
)  # fmt: skip

# Operators that hosts compute in float32: numpy would cast each operand, or go element by element.
SLOW_IN_16_BITS = WEIGHTED | (ELEMENTWISE - FAST_IN_16_BITS - {"Cast"}) | frozenset(
    {
        "Attention", "AveragePool", "BatchNormalization", "CumSum", "Einsum", "Gemm",
        "GlobalAveragePool", "GlobalMaxPool", "GridSample", "GroupNormalization",
        "InstanceNormalization", "LRN", "LogSoftmax", "MatMul", "MaxPool", "Resize",
        "RotaryEmbedding", "Softmax", "TopK",
    }
)  # fmt: skip

# Operators that take 16-bit floats and float32 alike; nodes count whose results are 16-bit.
MEMBERS = FAST_IN_16_BITS | SLOW_IN_16_BITS

# Values that may be cast for each slow node: it takes several times as long in 16 bits.
MAX_CASTS_PER_SLOW_NODE = 4

# Values that were cast, by the graph that it is done in.
Casts = dict[tuple[ir.Graph | ir.Function, ir.Value], ir.Value]

# Elements of a constant that are widened with the subgraph around it; of ``WEIGHTED``, any.
MAX_ELEMENTS = 4096


def widen_fp16(model: ir.Model, context: TransformContext) -> bool:
    """Compute in float32 what 16 bits slow down, and what is between, if few values are cast.

    Matrices stay narrow behind a Cast of their own, which providers take together with the product.
    Convolutions are widened at any price, and their weights with them. What was in bfloat16 is
    noted (``FACTORS_KEY``): its operands are no more precise than that.
    """
    if not _has_narrow(model):
        return False
    count = 0
    made: Casts = {}
    for graph in graphs(model):
        seen: set[ir.Node] = set()
        for node in tuple(graph):
            if node.graph is graph and node not in seen and _is_member(node):
                subgraph = _subgraph(node)
                seen |= subgraph.keys()
                entering, leaving = _entering(subgraph), _leaving(subgraph)
                casts = len(entering) + len(leaving)
                slow = sum(n.op_type in SLOW_IN_16_BITS for n in subgraph)
                # A convolution in 16 bits takes far longer than any casts around it.
                dear = casts > MAX_CASTS_PER_SLOW_NODE * slow
                if casts and dear and not any(n.op_type in CONVOLUTIONS for n in subgraph):
                    chains = _chains(subgraph)
                    for chain in chains:
                        _widen(graph, chain, made, context)
                    count += len(chains)
                    names = ", ".join(f"'{value.name}'" for value in (*entering, *leaving))
                    context.notes.append(
                        f"nearly a subgraph of {len(subgraph)} nodes: {names} would have to be cast"
                    )
                else:
                    _widen(graph, subgraph, made, context)
                    count += 1
    if count:
        context.notes.append(f"matched {count} subgraphs of 16-bit floats between casts")
    return count > 0


def _has_narrow(model: ir.Model) -> bool:
    """Return whether the type of any value is 16 bits without following it to another one."""
    return any(
        said_type(value) in NARROW
        for graph in graphs(model)
        for values in (graph.inputs, graph.initializers.values(), *(n.outputs for n in graph))
        for value in values
    )


def _is_member(node: ir.Node) -> bool:
    if node.domain or node.op_type not in MEMBERS:
        return False
    kinds = [dtype_of(value) for value in node.outputs if value.name]
    return bool(kinds) and kinds[0] in NARROW and None not in kinds


def _results(node: ir.Node) -> list[ir.Value]:
    """Return the results of a member that are of 16 bits, or were before it was widened."""
    return [value for value in node.outputs if value.name and dtype_of(value) != ir.DataType.INT64]


def _subgraph(start: ir.Node, members: frozenset[str] = MEMBERS) -> dict[ir.Node, None]:
    """Return the nodes of one graph that are joined to one by 16-bit values."""
    subgraph = {start: None}
    queue = [start]
    for node in queue:
        makers = (value.producer() for value in node.inputs if value is not None)
        readers = (use.node for value in _results(node) for use in value.uses())
        for other in (*makers, *readers):
            if other is None or other in subgraph or other.graph is not start.graph:
                continue
            if other.op_type in members and _is_member(other):
                subgraph[other] = None
                queue.append(other)
    return subgraph


def _chains(subgraph: dict[ir.Node, None]) -> list[dict[ir.Node, None]]:
    """Return the elementwise nodes that are joined to others, which numpy would round each.

    Each casts its operands anyway, so a chain is never dearer than its nodes.
    """
    chains, seen = [], set[ir.Node]()
    for node in subgraph:
        if node in seen or node.op_type not in ELEMENTWISE:
            continue
        chain = _subgraph(node, ELEMENTWISE)
        seen |= chain.keys()
        if len(chain) > 1:
            chains.append(chain)
    return chains


def _entering(subgraph: dict[ir.Node, None]) -> list[ir.Value]:
    """Return the 16-bit values that a subgraph reads and that are no casts of float32."""
    found: dict[ir.Value, None] = {}
    for node in subgraph:
        for position, value in enumerate(node.inputs):
            if value is None or value.producer() in subgraph or not _is_narrow(node, position):
                continue
            kept = _is_ahead(node, position) or _is_matrix(node, position)
            if _source(value) is None and not kept:
                found[value] = None
    return list(found)


def _is_narrow(node: ir.Node, position: int) -> bool:
    """Return whether an input is of 16-bit floats; data of unknown type are, for the node is."""
    value = node.inputs[position]
    kind = dtype_of(value)
    return kind in NARROW or (kind is None and value in binding(node, 0)[0])


def _leaving(subgraph: dict[ir.Node, None]) -> list[ir.Value]:
    """Return the values of a subgraph that others read in 16 bits."""
    outputs = (value for node in subgraph for value in _results(node))
    return [
        value for value in outputs if value.is_graph_output() or _narrow_readers(value, subgraph)
    ]


def _narrow_readers(value: ir.Value, subgraph: dict[ir.Node, None]) -> list[tuple[ir.Node, int]]:
    """Return who reads a value of a subgraph in 16 bits; bodies may."""
    return [
        (use.node, use.idx)
        for use in value.uses()
        if not (use.node in subgraph or _takes_wide(use.node))
    ]


def _takes_wide(node: ir.Node) -> bool:
    """Return whether a node that is no member reads a value in float32 as it does in 16 bits."""
    return _widens(node) or (node.op_type == "IsNaN" and not node.domain)


def _is_ahead(node: ir.Node, position: int) -> bool:
    """Return whether an input is a constant that is widened once, not whenever the model runs."""
    value = node.inputs[position]
    weight = weight_of(value) if value is not None else None
    if weight is None or _is_matrix(node, position):
        return False
    return weight.array.size <= MAX_ELEMENTS or node.op_type in WEIGHTED


def _is_matrix(node: ir.Node, position: int) -> bool:
    value = node.inputs[position]
    weight = weight_of(value) if value is not None else None
    return node.op_type in ("Gemm", "MatMul") and position == 1 and weight is not None


def _source(value: ir.Value) -> ir.Value | None:
    node = value.producer()
    if node is None or node.op_type != "Cast" or node.domain:
        return None
    x = operand(node, 0)
    return x if dtype_of(x) == ir.DataType.FLOAT else None


def _widens(node: ir.Node) -> bool:
    return (
        node.op_type == "Cast"
        and not node.domain
        and len(node.outputs) == 1
        and attribute(node, "to", 0) == ir.DataType.FLOAT
    )


def _widen(
    graph: ir.Graph | ir.Function,
    subgraph: dict[ir.Node, None],
    casts: Casts,
    context: TransformContext,
) -> None:
    """Widen a subgraph; ``casts`` are those of values that it reads, which others may read too."""
    # All that depends on types and readers is listed first, since the loops below change both.
    kinds = {node: dtype_of(node.outputs[0]) for node in subgraph}
    leaving = {
        value: (
            _narrow_readers(value, subgraph),
            [n for n, v in enumerate(graph.outputs) if v is value],
        )
        for value in _leaving(subgraph)
    }
    for node in subgraph:
        for position, value in enumerate(node.inputs):
            if value is None or value.producer() in subgraph or not _is_narrow(node, position):
                continue
            wide = _source(value)
            if wide is None and _is_ahead(node, position):
                wide = _widened(graph, value, context)
            replace_input(node, position, wide or _widened_once(graph, value, node, casts))
    for node in subgraph:
        if kinds[node] is ir.DataType.BFLOAT16:
            node.metadata_props[FACTORS_KEY] = "bfloat16"
        for output in _results(node):
            output.type = ir.TensorType(ir.DataType.FLOAT)
            for use in tuple(output.uses()):
                if use.node not in subgraph and _widens(use.node):
                    bypass(use.node, output)
            if output in leaving:
                _narrow_again(graph, output, kinds[node], *leaving[output])


def _widened_once(
    graph: ir.Graph | ir.Function, value: ir.Value, reader: ir.Node, casts: Casts
) -> ir.Value:
    """Return a value cast, with all who read it; a matrix, where the product is that reads it."""
    home = graph if weight_of(value) is not None else value.graph
    assert home is not None
    if (home, value) not in casts:
        wide = casts[home, value] = _cast(home, value, ir.DataType.FLOAT, reader)
        if home is not value.graph:
            wide.name = f"{wide.name}/{len(casts)}"
    return casts[home, value]


def _cast(
    graph: ir.Graph | ir.Function, value: ir.Value, kind: ir.DataType, reader: ir.Node
) -> ir.Value:
    """Return a value cast, as soon as it is there."""
    cast = ir.node("Cast", [value], {"to": kind}, version=reader.version)
    made = cast.outputs[0]
    made.name, made.shape, made.type = f"{value.name}/{kind.name}", value.shape, ir.TensorType(kind)
    producer = value.producer()
    if producer is not None:
        graph.insert_after(producer, cast)
    else:
        graph.insert_before(graph[0], cast)
    return made


def _narrow_again(
    graph: ir.Graph | ir.Function,
    output: ir.Value,
    kind: ir.DataType | None,
    readers: list[tuple[ir.Node, int]],
    places: list[int],
) -> None:
    """Give those who read a value in 16 bits, outputs at some places too, a cast of it."""
    producer = output.producer()
    assert kind is not None
    assert producer is not None
    name = output.name
    narrow = _cast(graph, output, kind, producer)
    for reader, position in readers:
        replace_input(reader, position, narrow)
    if places:
        output.name, narrow.name = f"{name}/FLOAT", name
    for place in places:
        graph.outputs[place] = narrow


def _widened(graph: ir.Graph | ir.Function, value: ir.Value, context: TransformContext) -> ir.Value:
    weight = weight_of(value)
    assert weight is not None
    key = f"widened-1:{weight.key}"
    return derived(
        graph,
        f"{value.name}/float32",
        key,
        lambda: weight.on(HOST).astype(np.float32),
        [weight],
        context,
    )
