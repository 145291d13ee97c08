"""From an ``onnx_ir`` model to the tables of an ``.ort`` file that onnxruntime loads."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import onnx_ir as ir
from onnx_ir.passes.common import LiftConstantsToInitializersPass

from tenonnx import InvalidGraph, NotSupported
from tenonnx.graph import captures, nodes, resolve_versions
from tenonnx.graph.functions import expand_unsupported, inline_functions, schema_of
from tenonnx.graph.inference import infer_types
from tenonnx_ort_format.build import Later, Tables
from tenonnx_ort_format.schema import SCHEMA, TYPE_KINDS

# onnxruntime's version of the format since 1.13; all that followed read it.
FORMAT_VERSION = "6"

# Operators of ONNX that onnxruntime runs by the body of their schema, which it reads no more once
# a model is in an ``.ort`` file.
WITHOUT_KERNEL = {
    "Bernoulli", "CastLike", "CausalConvWithState", "CenterCropPad", "GroupNormalization",
    "HardSwish", "LinearAttention", "Mish", "NegativeLogLikelihoodLoss", "SequenceMap",
    "SoftmaxCrossEntropyLoss", "SwiGLU", "Swish",
}  # fmt: skip

Fields = dict[str, Any]


def write_model(model: ir.Model, path: Path, identifier: bytes) -> None:
    """Write a model; the weights go from where they are to the file, one at a time.

    Raises:
        NotSupported: It has something that the format cannot say.
        InvalidGraph: A value's type is unknown.
        InvalidArgument: It is too large.
    """
    model.graph.sort()  # only what is in order can be cloned
    model = model.clone()
    resolve_versions(model)
    inline_functions(model)
    expand_unsupported(model, lambda node: bool(node.domain) or node.op_type not in WITHOUT_KERNEL)
    LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model)
    infer_types(model)
    tables = Tables(SCHEMA)
    session = {
        "ort_version": FORMAT_VERSION,
        "model": _model(model),
        "kernel_type_str_resolver": _resolver(model),
    }
    root = tables.table("InferenceSession", session)
    with path.open("wb") as file:
        tables.write(root, identifier, file)


def _model(model: ir.Model) -> Fields:
    return {
        "ir_version": model.ir_version,
        "opset_import": [{"domain": d, "version": v} for d, v in model.opset_imports.items()],
        "producer_name": model.producer_name or "",
        "producer_version": model.producer_version or "",
        "domain": model.domain or "",
        "model_version": model.model_version or 0,
        "doc_string": model.doc_string or "",
        "graph": _graph(model.graph),
        "graph_doc_string": model.graph.doc_string or "",
        "metadata_props": [{"key": k, "value": v} for k, v in model.metadata_props.items()],
    }


def _graph(graph: ir.Graph) -> Fields:
    own = list(graph)
    named = [_named(value) for value in _values(graph)]
    return {
        "initializers": [_initializer(value) for value in graph.initializers.values()],
        "node_args": [*named, {"name": ""}],
        "nodes": [_node(node, index) for index, node in enumerate(own)],
        "max_node_index": len(own),
        "node_edges": _edges(own),
        "inputs": [value.name for value in graph.inputs],
        "outputs": [value.name for value in graph.outputs],
    }


def _values(graph: ir.Graph) -> Iterable[ir.Value]:
    """Return all values that a graph defines, or reads of those around it."""
    values = dict.fromkeys([*graph.inputs, *graph.initializers.values(), *graph.outputs])
    for node in graph:
        values.update(dict.fromkeys(v for v in node.outputs if v.name))
        values.update(dict.fromkeys(v for v in node.inputs if v is not None))
        values.update(dict.fromkeys(_implicit(node)))
    return values


def _implicit(node: ir.Node) -> list[ir.Value]:
    """Return the values around a node that its subgraphs read, in order of first use."""
    return list(dict.fromkeys(captures(node)))


def _named(value: ir.Value) -> Fields:
    if value.type is None:
        maker = value.producer()
        raise InvalidGraph(
            f"the type of {value.name!r} is not known"
            + (f" (an output of {maker.domain or 'ai.onnx'}'s {maker.op_type})" if maker else "")
            + ", which an .ort file must say",
            hint="give the model a value_info of that name",
        )
    return {"name": value.name, "type": _type(value.type, value.shape)}


def _type(kind: ir.TypeProtocol, shape: ir.Shape | None) -> Fields:
    if type(kind) is ir.TensorType:
        fields: Fields = {"elem_type": int(kind.dtype)}
        if shape is not None:
            fields["shape"] = {"dim": [_dimension(size) for size in shape]}
        index = 1
    elif isinstance(kind, ir.SequenceType):
        fields, index = {"elem_type": _type(kind.elem_type, None)}, 2
    else:
        raise NotSupported(f".ort files have no {type(kind).__name__.removesuffix('Type')} values")
    return {"value_type": index, "value": (TYPE_KINDS[index - 1], fields)}


def _dimension(size: int | ir.SymbolicDim) -> Fields:
    if isinstance(size, int):
        return {"value": {"dim_type": 1, "dim_value": size}}
    if size.value is None:
        return {"value": {"dim_type": 0}}
    return {"value": {"dim_type": 2, "dim_param": str(size.value)}}


def _node(node: ir.Node, index: int) -> Fields:
    schema = _schema(node)
    return {
        "name": node.name or "",
        "doc_string": node.doc_string or "",
        "domain": node.domain,
        "since_version": schema.since_version,
        "index": index,
        "op_type": node.op_type,
        "type": 0,
        "execution_provider_type": "",
        "inputs": [value.name if value is not None else "" for value in node.inputs],
        "outputs": [value.name or "" for value in node.outputs],
        "attributes": [_attribute(attribute) for attribute in node.attributes.values()],
        "input_arg_counts": _counts(len(node.inputs), len(schema.inputs)),
        "implicit_inputs": [value.name for value in _implicit(node)],
    }


def _counts(given: int, formal: int) -> list[int]:
    """Return how many inputs each formal one has: the last, if variadic, all that are left."""
    counts = [int(position < given) for position in range(formal)]
    if given > formal > 0:
        counts[-1] += given - formal
    return counts


def _edges(nodes: Sequence[ir.Node]) -> list[Fields]:
    """Return each node's edges: the other node, the output there or here, the input."""
    index = {node: i for i, node in enumerate(nodes)}
    edges = [(list[tuple[int, int, int]](), list[tuple[int, int, int]]()) for _ in nodes]
    for node, here in index.items():
        for position, value in enumerate((*node.inputs, *_implicit(node))):
            maker = value.producer() if value is not None else None
            if value is None or maker is None or maker not in index:
                continue
            there, output = index[maker], value.index() or 0
            edges[here][0].append((there, output, position))
            edges[there][1].append((here, output, position))
    return [
        {"node_index": i, "input_edges": sorted(into), "output_edges": sorted(out)}
        for i, (into, out) in enumerate(edges)
    ]


def _attribute(attribute: ir.Attr) -> Fields:
    value = attribute.value
    match attribute.type:
        case ir.AttributeType.FLOAT:
            field: Fields = {"f": value}
        case ir.AttributeType.INT:
            field = {"i": value}
        case ir.AttributeType.STRING:
            field = {"s": value}
        case ir.AttributeType.TENSOR:
            field = {"t": _tensor(value, value.name)}
        case ir.AttributeType.GRAPH:
            field = {"g": _graph(value)}
        case ir.AttributeType.FLOATS | ir.AttributeType.INTS | ir.AttributeType.STRINGS:
            field = {attribute.type.name.lower(): list(value)}
        case ir.AttributeType.TENSORS:
            field = {"tensors": [_tensor(tensor, tensor.name) for tensor in value]}
        case ir.AttributeType.GRAPHS:
            field = {"graphs": [_graph(graph) for graph in value]}
        case _:
            raise NotSupported(
                f".ort files have no attributes of type {attribute.type.name} "
                f"(that of {attribute.name!r})"
            )
    return {"name": attribute.name, "type": int(attribute.type), **field}


def _initializer(value: ir.Value) -> Fields:
    if value.const_value is None:
        raise InvalidGraph(f"initializer {value.name!r} has no value")
    return _tensor(value.const_value, value.name)


def _tensor(tensor: ir.TensorProtocol, name: str | None) -> Fields:
    fields: Fields = {
        "name": name or "",
        "dims": [int(size) for size in tensor.shape.numpy()],
        "data_type": int(tensor.dtype),
    }
    if tensor.dtype == ir.DataType.STRING:
        return fields | {"string_data": [_text(x) for x in tensor.numpy().reshape(-1)]}
    return fields | {"raw_data": Later(tensor)}


def _text(text: str | bytes) -> str:
    return text.decode() if isinstance(text, bytes) else str(text)


def _schema(node: ir.Node) -> Any:
    """Return the schema of a node's operator.

    Raises:
        NotSupported: There is none.
    """
    if (schema := schema_of(node)) is None:
        raise NotSupported(
            f"{node.domain or 'ai.onnx'}'s {node.op_type} cannot be written to an .ort file: "
            "onnxruntime needs its schema there, and ONNX has none",
            hint="have onnxruntime write the file (session.save_model_format = ORT); if it is a "
            "transform's, graph_optimization_level ORT_ENABLE_BASIC makes none",
        )
    return schema


def _resolver(model: ir.Model) -> Fields:
    """Return which inputs and outputs stand for each type that a kernel may be chosen by."""
    schemas = {}
    for node in nodes(model.graph):
        schema = _schema(node)
        schemas[f"{schema.domain}:{schema.name}:{schema.since_version}"] = schema
    entries = [{"op_id": key, "kernel_type_str_args": _args(s)} for key, s in schemas.items()]
    return {"op_kernel_type_str_args": _by_key(entries, "op_id")}


def _args(schema: Any) -> list[Fields]:
    constrained = {constraint.type_param_str for constraint in schema.type_constraints}
    found: dict[str, list[Fields]] = {}
    for kind, parameters in enumerate((schema.inputs, schema.outputs)):
        for position, parameter in enumerate(parameters):
            name = parameter.type_str if parameter.type_str in constrained else parameter.name
            found.setdefault(name, []).append({"arg_type": kind, "index": position})
    entries = [{"kernel_type_str": name, "args": args} for name, args in found.items()]
    return _by_key(entries, "kernel_type_str")


def _by_key(entries: list[Fields], key: str) -> list[Fields]:
    """Return tables in the order that flatbuffers' binary search expects."""
    return sorted(entries, key=lambda entry: str(entry[key]).encode())
