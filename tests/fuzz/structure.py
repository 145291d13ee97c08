"""Mutations of models that know what a model is."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from fuzz import messages
from fuzz.corpus import Corpus
from fuzz.hostile import DTYPES, SIZES, WORDS, element, filled, integer, spoiled

Mutation = Callable[[onnx.ModelProto, random.Random, Corpus], str]

DOMAINS = ["", "ai.onnx", "ai.onnx.ml", "com.microsoft", "f", "ai.onnx.preview.training", "x.y"]


@cache
def schemas() -> list[Any]:
    return sorted(onnx.defs.get_all_schemas(), key=lambda each: (each.domain, each.name))


def some_node(model: onnx.ModelProto, draw: random.Random) -> onnx.NodeProto:
    found = messages.one_of(model, onnx.NodeProto, draw)
    return model.graph.node.add(op_type="Identity") if found is None else found


def some_graph(model: onnx.ModelProto, draw: random.Random) -> onnx.GraphProto:
    # A model that lost its graph has none.
    found = None if draw.random() < 0.6 else messages.one_of(model, onnx.GraphProto, draw)
    return model.graph if found is None else found


def names(model: onnx.ModelProto) -> list[str]:
    found = {name for node in model.graph.node for name in (*node.input, *node.output)}
    found |= {value.name for value in (*model.graph.input, *model.graph.initializer)}
    return [*sorted(found), ""]


def attribute(model: onnx.ModelProto, draw: random.Random, _: Corpus) -> str:
    found = [each for each in messages.messages(model) if isinstance(each, onnx.NodeProto)]
    found = [each for each in found if each.attribute]
    if not found:
        return new_attribute(model, draw, _)
    node = draw.choice(found)
    return f"{node.op_type}.{messages.attribute_value(draw.choice(node.attribute), draw)}"


def new_attribute(model: onnx.ModelProto, draw: random.Random, _: Corpus) -> str:
    """An attribute that the operator may have, or one that it has not."""
    node = some_node(model, draw)
    known = []
    if onnx.defs.has(node.op_type, node.domain):
        known = sorted(onnx.defs.get_schema(node.op_type, domain=node.domain).attributes.items())
    name, kind = draw.choice(["axis", "axes", "x", "", "to", "value"]), draw.choice([1, 2, 3, 7])
    if known and draw.random() < 0.85:
        name, schema = draw.choice(known)
        kind = schema.type.value
    made = node.attribute.add(name=name, type=kind)
    messages.attribute_value(made, draw)
    if kind == onnx.AttributeProto.TENSOR:
        array = filled(draw.choice(DTYPES), tuple(draw.choices(SIZES, k=draw.randrange(3))), draw)
        made.t.CopyFrom(numpy_helper.from_array(spoiled(array, draw)))
    return f"{node.op_type} has {name}"


def attributes_of_another(model: onnx.ModelProto, draw: random.Random, corpus: Corpus) -> str:
    """Attributes, or all of a node but its names, from a seed that has the operator, too."""
    donor = messages.one_of(another(draw, corpus), onnx.NodeProto, draw)
    node = some_node(model, draw)
    if donor is None:
        return "nothing"
    if draw.random() < 0.5:
        node.op_type, node.domain = donor.op_type, donor.domain
    del node.attribute[:]
    messages.append(node.attribute, donor.attribute)
    return f"{node.op_type} as {donor.op_type}"


def another(draw: random.Random, corpus: Corpus) -> onnx.ModelProto:
    groups = [group for name, group in corpus.groups.items() if name not in ("ort", "files")]
    return draw.choice(draw.choice(groups)).proto()


def operator(model: onnx.ModelProto, draw: random.Random, _: Corpus) -> str:
    node = some_node(model, draw)
    if draw.random() < 0.2:
        node.domain = draw.choice([*DOMAINS, *WORDS])
        return f"{node.op_type} of {node.domain!r:.40}"
    schema = draw.choice(schemas())
    before, node.op_type = node.op_type, schema.name
    if draw.random() < 0.9:
        node.domain = schema.domain
    if draw.random() < 0.5:
        del node.attribute[:]
    return f"{before} is {schema.name}"


def version(model: onnx.ModelProto, draw: random.Random, _: Corpus) -> str:
    if not model.opset_import or draw.random() < 0.2:
        model.opset_import.add(domain=draw.choice([*DOMAINS, *WORDS]), version=1)
    chosen = draw.choice(model.opset_import)
    near = draw.random() < 0.7
    chosen.version = draw.randrange(1, 28) if near else integer(draw, chosen.version)
    return f"{chosen.domain!r:.40} {chosen.version}"


def wiring(model: onnx.ModelProto, draw: random.Random, _: Corpus) -> str:
    """Another value as an input or output: absent, unknown, defined twice, in a cycle."""
    node = some_node(model, draw)
    place = node.input if draw.random() < 0.75 else node.output
    name = draw.choice([*names(model), draw.choice(WORDS)])
    way = draw.choice(["set", "set", "set", "add", "drop", "swap"])
    if way == "set" and place:
        place[draw.randrange(len(place))] = name
    elif way == "drop" and place:
        del place[draw.randrange(len(place))]
    elif way == "swap" and len(place) > 1:
        first, second = draw.sample(range(len(place)), 2)
        place[first], place[second] = place[second], place[first]
    else:
        place.append(name)
    return f"{node.op_type} {way} {name!r:.40}"


def placing(model: onnx.ModelProto, draw: random.Random, corpus: Corpus) -> str:
    """Nodes dropped, repeated, in another order, or of another model."""
    graph = some_graph(model, draw)
    way = draw.choice(["drop", "twice", "order", "other", "chain", "more"])
    if not graph.node or way == "other":
        messages.append(graph.node, another(draw, corpus).graph.node[:3])
        return "nodes of another"
    at = draw.randrange(len(graph.node))
    if way == "drop":
        del graph.node[at]
    elif way == "twice":
        messages.append(graph.node, [graph.node[at]])
    elif way == "order":
        order = list(graph.node)
        draw.shuffle(order)
        del graph.node[:]
        messages.append(graph.node, order)
    elif way == "more":
        _follow(graph, draw, draw.choice(schemas()))
    else:
        for _ in range(draw.choice([2, 30, 300])):
            _follow(graph, draw, None, graph.node[at])
    return way


def _follow(
    graph: onnx.GraphProto, draw: random.Random, schema: Any, like: onnx.NodeProto | None = None
) -> None:
    """Add a node that reads what the graph returns, and return its output instead."""
    if not graph.output:
        return
    result = draw.choice(graph.output)
    made = onnx.NodeProto(op_type=schema.name, domain=schema.domain) if schema else None
    made = made or onnx.NodeProto.FromString((like or graph.node[0]).SerializeToString())
    inputs = [*made.input] or [""] * (min(schema.min_input, 9) if schema else 1)
    name = f"m{len(graph.node)}"
    del made.input[:], made.output[:]
    made.input.extend([result.name, *inputs[1:]])
    made.output.append(name)
    graph.node.add().CopyFrom(made)
    result.CopyFrom(onnx.ValueInfoProto(name=name))


def weight(model: onnx.ModelProto, draw: random.Random, _: Corpus) -> str:
    """Other elements, another shape, dtype or length of a tensor."""
    tensor = messages.one_of(model, onnx.TensorProto, draw)
    if tensor is None:
        tensor = model.graph.initializer.add(name=draw.choice(names(model)), data_type=1)
    way = draw.choice(["elements", "elements", "elements", "shape", "dtype", "field", "other"])
    try:
        array = numpy_helper.to_array(tensor)
    except Exception:
        return messages.mutate_field(tensor, draw)
    if way == "elements":
        made = spoiled(array, draw)
    elif way == "shape":
        made = _reshaped(array, draw)
    elif way == "dtype":
        made = filled(draw.choice(DTYPES), array.shape, draw) if array.size < 1 << 16 else array
    elif way == "other":
        made = filled(array.dtype, tuple(draw.choices(SIZES, k=draw.randrange(5))), draw)
    else:
        return messages.mutate_field(tensor, draw)
    if made.dtype.kind == "O":
        made = np.array([str(each) for each in made.reshape(-1)], object).reshape(made.shape)
    name, kind = tensor.name, tensor.data_type
    tensor.CopyFrom(numpy_helper.from_array(made, name))
    if way == "elements" and kind in (21, 22, 23, 24, 25, 26):  # packed or narrow: as they were
        tensor.data_type = kind
    return f"{name} {way}"


def _reshaped(array: Any, draw: random.Random) -> Any:
    way = draw.choice(["less", "more", "axis", "flat", "none", "less", "more"])
    if way == "axis":
        return array[np.newaxis] if draw.random() < 0.5 else array[..., np.newaxis]
    if way == "flat":
        return array.reshape(-1)
    if way == "none" or not array.ndim or not array.size:
        return array.reshape(-1)[:0]
    axis = draw.randrange(array.ndim)
    if way == "less":
        return array.take(range(draw.randrange(array.shape[axis])), axis)
    return np.repeat(array, 2, axis) if array.size < 1 << 20 else array


def signature(model: onnx.ModelProto, draw: random.Random, _: Corpus) -> str:
    """Another type, shape or name of an input or output."""
    values = [*model.graph.input, *model.graph.output, *model.graph.value_info]
    if not values:
        return "nothing"
    value = draw.choice(values)
    tensor = value.type.tensor_type
    way = draw.choice(["dtype", "rank", "dim", "dim", "open", "kind", "name"])
    if way == "dtype":
        tensor.elem_type = draw.choice([*range(24), -1, 999])
    elif way == "rank":
        tensor.shape.dim.add(dim_value=draw.choice(SIZES))
    elif way == "dim" and tensor.shape.dim:
        dim = draw.choice(tensor.shape.dim)
        if draw.random() < 0.5:
            dim.dim_param = draw.choice(["n", "", "m", *WORDS])
        else:
            dim.dim_value = integer(draw, dim.dim_value)
    elif way == "open":
        tensor.ClearField("shape")
    elif way == "kind":
        return messages.mutate_field(value.type, draw)
    else:
        value.name = draw.choice([*names(model), *WORDS])
    return f"{value.name!r:.40} {way}"


def functions(model: onnx.ModelProto, draw: random.Random, _: Corpus) -> str:
    """The graph's nodes as a function, which may call itself, or others twice over."""
    graph = model.graph
    if not graph.node:
        return "nothing"
    depth = draw.choice([1, 1, 2, 8, 20])
    body = [onnx.NodeProto.FromString(node.SerializeToString()) for node in graph.node]
    inputs = [value.name for value in (*graph.input, *graph.initializer)]
    outputs = [value.name for value in graph.output]
    imports = [*model.opset_import, helper.make_opsetid("f", 1)]
    for level in range(depth):
        made = model.functions.add(domain="f", name=f"F{level}")
        made.input.extend(inputs)
        made.output.extend(outputs)
        made.opset_import.extend(imports)
        if level == depth - 1 and draw.random() < 0.8:
            messages.append(made.node, body)
            continue
        called = draw.choice([level + 1, level + 1, level + 1, draw.randrange(depth)])
        for _ in range(draw.choice([1, 1, 2])):
            made.node.add(op_type=f"F{called}", domain="f", input=inputs, output=outputs)
    del graph.node[:]
    graph.node.add(op_type="F0", domain="f", input=inputs, output=outputs)
    model.opset_import.append(helper.make_opsetid("f", 1))
    return f"functions {depth}"


def branches(model: onnx.ModelProto, draw: random.Random, _: Corpus) -> str:
    """The graph's nodes in the branches of an If, or the body of a Loop, several levels deep."""
    graph = model.graph
    for level in range(draw.choice([1, 1, 2, 5, 20])):
        if graph.ByteSize() > messages.MAX_BYTES:
            break
        body = onnx.GraphProto(name=f"b{level}", output=graph.output)
        messages.append(body.node, graph.node)
        made = onnx.NodeProto(op_type="If", name=f"if{level}")
        made.input.append(f"c{level}")
        made.output.extend(value.name for value in graph.output)
        names = ["then_branch", "else_branch"]
        messages.append(made.attribute, [helper.make_attribute(name, body) for name in names])
        if level > 3:  # twice as many nodes each time
            del made.attribute[1].g.node[:]
        del graph.node[:]
        messages.append(graph.node, [made])
        graph.initializer.append(numpy_helper.from_array(np.array(True), f"c{level}"))
    return "branches"


def sparse(model: onnx.ModelProto, draw: random.Random, _: Corpus) -> str:
    """A sparse tensor in place of a dense one, or a hostile one that nothing reads."""
    holders = [each for each in model.graph.initializer if 0 < len(each.dims) < 5]
    made = model.graph.sparse_initializer.add()
    name = draw.choice(holders).name if holders else "sparse"
    dims = [draw.choice([1, 2, 3, 8]) for _ in range(draw.randrange(1, 4))]
    if draw.random() < 0.4:
        dims[draw.randrange(len(dims))] = integer(draw)
    values = spoiled(filled("f4", (2,), draw), draw)
    indices = filled("i8", draw.choice([(2,), (2, len(dims)), (3,), (2, 1)]), draw)
    made.values.CopyFrom(numpy_helper.from_array(values, name))
    made.indices.CopyFrom(numpy_helper.from_array(spoiled(np.abs(indices), draw), "indices"))
    made.dims.extend(dims)
    kept = [each for each in model.graph.initializer if each.name != name]
    del model.graph.initializer[:]
    model.graph.initializer.extend(kept)
    return f"sparse {name!r:.40} {dims}"


def annotations(model: onnx.ModelProto, draw: random.Random, _: Corpus) -> str:
    note = model.graph.quantization_annotation.add(tensor_name=draw.choice(names(model)))
    for key in ("SCALE_TENSOR", "ZERO_POINT_TENSOR", draw.choice(WORDS)):
        note.quant_parameter_tensor_names.add(key=key, value=draw.choice(names(model)))
    return "annotation"


def renamed(model: onnx.ModelProto, draw: random.Random, _: Corpus) -> str:
    """One name for another everywhere: collisions, empty, overlong and odd names."""
    old, new = draw.choice(names(model)), draw.choice([*names(model), *WORDS])
    for message in messages.messages(model):
        if isinstance(message, onnx.NodeProto):
            for place in (message.input, message.output):
                place[:] = [new if name == old else name for name in place]
        elif isinstance(message, onnx.ValueInfoProto | onnx.TensorProto) and message.name == old:
            message.name = new
    return f"{old!r:.40} is {new!r:.40}"


def field(model: onnx.ModelProto, draw: random.Random, _: Corpus) -> str:
    return messages.mutate_field(model, draw)


def constant_of(model: onnx.ModelProto, draw: random.Random, _: Corpus) -> str:
    """An input becomes a constant of hostile elements."""
    chosen = [value for value in model.graph.input if value.type.HasField("tensor_type")]
    if not chosen:
        return "nothing"
    value = draw.choice(chosen)
    kind = value.type.tensor_type
    dims = [dim.dim_value if 0 < dim.dim_value < 65 else 2 for dim in kind.shape.dim]
    try:
        dtype = helper.tensor_dtype_to_np_dtype(kind.elem_type)
    except KeyError:
        return "nothing"
    dims = dims[:6] if np.prod(dims[:6]) < 1 << 16 else dims[:2]
    array = spoiled(filled(dtype, tuple(dims), draw), draw)
    if array.dtype.kind == "f" and draw.random() < 0.2:
        array[...] = element(array.dtype, 0, draw)
    model.graph.initializer.append(numpy_helper.from_array(array, value.name))
    model.graph.input.remove(value)
    return f"{value.name!r:.40} constant"


MUTATIONS: dict[Mutation, int] = {
    attribute: 20,
    new_attribute: 8,
    attributes_of_another: 4,
    operator: 8,
    version: 4,
    wiring: 10,
    placing: 8,
    weight: 16,
    signature: 6,
    functions: 2,
    branches: 2,
    sparse: 2,
    annotations: 1,
    renamed: 3,
    field: 14,
    constant_of: 8,
}
"""Each with how often it is drawn."""
