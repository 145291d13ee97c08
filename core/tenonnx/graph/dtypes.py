"""The element types of values, as it follows before a model runs from what operators' schemas say.

This module is public: plug-ins of others may import it.
"""

from __future__ import annotations

import functools
from typing import Final

import onnx_ir as ir

from tenonnx.graph import attribute, is_control_flow, subgraphs
from tenonnx.graph.functions import schema_of
from tenonnx.graph.sizes import SIZE_RULES, operand
from tenonnx.graph.traits import ALL_TYPED_AS_FIRST, BOOLEAN, COUNTING, TYPED_AS

# Nodes that types are followed through; exporters leave most values with theirs.
MAX_FOLLOWED_NODES: Final = 40

# Attributes that are the number of a type.
STATED: Final = ("to", "dtype", "output_dtype", "output_datatype")

KNOWN_TYPES: Final = frozenset(kind.value for kind in ir.DataType) - {0}

# The types of a Constant's attributes.
CONSTANTS: Final = {
    f"value_{name}{ending}": ir.DataType[kind]
    for name, kind in (("float", "FLOAT"), ("int", "INT64"), ("string", "STRING"))
    for ending in ("", "s")
}

# The input that has the first output's type, of com.microsoft's; of the others it is the first.
TYPED: Final = {
    "EmbedLayerNormalization": 2,
    "SkipLayerNormalization": 2,
    "SkipSimplifiedLayerNormalization": 2,
    "Attention": 1,
}


def dtype_of(value: ir.Value | None) -> ir.DataType | None:
    """Return a value's element type, as the model says or as operators' schemas bind it."""
    found: ir.Value | ir.DataType | None = value
    for _ in range(MAX_FOLLOWED_NODES):
        if not isinstance(found, ir.Value):
            return found
        found = type_source(found)
    return None


def type_source(value: ir.Value) -> ir.Value | ir.DataType | None:
    """Return a value's element type, or a value that has the same one; ``None`` if unknown."""
    if (known := said_type(value)) is not None:
        return known
    node, index = value.producer(), value.index()
    if node is None or index is None:
        return None
    kind, alike = result_type(node, index)
    return kind or next(filter(None, map(said_type, alike)), alike[0] if alike else None)


def result_type(
    node: ir.Node, index: int, *, by_schema: bool = True
) -> tuple[ir.DataType | None, list[ir.Value]]:
    """Return the element type that an operator gives to a result, or values that have it, too.

    Nothing is returned where neither is known, which is more often so without schemas.
    """
    if is_control_flow(node):
        return None, _results_of_bodies(node, index)
    if index == 0 and (known := _stated_type(node)) is not None:
        return known, []
    if node.domain in ("com.microsoft", "ai.tenonnx"):  # of which schemas say nothing
        is_first = index == 0 and (node.domain, node.op_type) in SIZE_RULES
        given = operand(node, TYPED.get(node.op_type, 0)) if is_first else None
        return None, [] if given is None else [given]
    if bound := _alike(node, index):
        return None, bound
    if not by_schema:
        return None, []
    bound, allowed = binding(node, index)
    if bound:
        return None, bound
    return (next(iter(allowed)) if len(allowed) == 1 else None), []


def _alike(node: ir.Node, index: int) -> list[ir.Value]:
    """Return inputs that have an output's type, as traits say.

    Schemas would say so too: the first that is asked for takes 4 MiB and milliseconds.
    """
    if node.domain or (which := TYPED_AS.get(node.op_type)) is None:
        return []
    if index and node.op_type not in ALL_TYPED_AS_FIRST:
        return []
    return [value for value in node.inputs[which] if value is not None]


def _results_of_bodies(node: ir.Node, index: int) -> list[ir.Value]:
    position = index + (node.op_type == "Loop")  # behind the condition
    outputs = (body.outputs for _, body in subgraphs(node))
    return [some[position] for some in outputs if position < len(some)]


def _stated_type(node: ir.Node) -> ir.DataType | None:
    """Return the type that attributes of one of ONNX's operators give to its first output."""
    if node.domain:
        return None
    if node.op_type == "Cast":
        return cast_type(node)
    if node.op_type in BOOLEAN:
        return ir.DataType.BOOL
    if node.op_type in COUNTING:
        return ir.DataType.INT64
    if node.op_type in ("Constant", "ConstantOfShape"):
        if (given := attribute(node, "value", None)) is not None:
            return getattr(given, "dtype", None)  # which a malformed one has not
        kinds = (kind for name, kind in CONSTANTS.items() if name in node.attributes)
        return next(kinds, ir.DataType.FLOAT if node.op_type == "ConstantOfShape" else None)
    if not node.attributes.data:  # as most nodes
        return None
    number = next((n for name in STATED if (n := attribute(node, name, 0))), 0)
    return ir.DataType(number) if number in KNOWN_TYPES else None


def said_type(value: ir.Value) -> ir.DataType | None:
    """Return the element type that a model says of a value."""
    kind = value.dtype if value.const_value is None else value.const_value.dtype
    return None if kind == ir.DataType.UNDEFINED else kind


def cast_type(node: ir.Node) -> ir.DataType | None:
    """Return the type that a Cast makes, if there is one of its number, or before 6 its name."""
    to = attribute(node, "to", 0)
    try:
        return ir.DataType[to] if isinstance(to, str) else ir.DataType(to)
    except (KeyError, ValueError):
        return None


def binding(node: ir.Node, index: int) -> tuple[list[ir.Value], frozenset[ir.DataType]]:
    """Return the inputs that have an output's type, and the types of tensors that it may have."""
    kind = node.op_type, node.version or 1, node.domain
    positions, allowed = _binding(*kind, index, len(node.inputs))
    given = (node.inputs[position] for position in positions)
    return [value for value in given if value is not None], allowed


@functools.lru_cache(maxsize=2048)
def _binding(
    op_type: str, version: int, domain: str, index: int, count: int
) -> tuple[tuple[int, ...], frozenset[ir.DataType]]:
    schema = schema_of(ir.Node(domain, op_type, [], num_outputs=0, version=version))
    if schema is None or not schema.outputs:
        return (), frozenset()
    wanted = schema.outputs[min(index, len(schema.outputs) - 1)]
    if not wanted.is_homogeneous:  # a body's results
        return (), frozenset()
    last = schema.inputs[-1].type_str if schema.inputs else ""  # of as many as there are
    names = [p.type_str for p in schema.inputs] + [last] * (count - len(schema.inputs))
    positions = tuple(n for n, name in enumerate(names[:count]) if name == wanted.type_str)
    said = {c.type_param_str: c.allowed_type_strs for c in schema.type_constraints}
    types = map(_tensor_type, said.get(wanted.type_str, [wanted.type_str]))
    return positions, frozenset(kind for kind in types if kind is not None)


def _tensor_type(name: str) -> ir.DataType | None:
    element = name.removeprefix("tensor(").removesuffix(")").upper()
    return ir.DataType.__members__.get(element) if name.startswith("tensor(") else None
