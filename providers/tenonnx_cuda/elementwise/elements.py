"""Which element types a graph's values have, as far as its schemas tell without shapes.

A device has no strings and no elements narrower than a byte, so a provider has to know what a node
takes before it runs. Models rarely say it of every value.
"""

from __future__ import annotations

import functools
import weakref
from typing import Final

import onnx
import onnx_ir as ir

from tenonnx import graph as graphs

ON_DEVICE: Final = frozenset(
    ir.DataType[name]
    for name in (
        *("BOOL", "INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64"),
        *("FLOAT16", "BFLOAT16", "FLOAT", "DOUBLE", "COMPLEX64", "COMPLEX128"),
    )
)
"""The element types that cupy has."""

TYPED_BY: Final = ("to", "dtype", "output_dtype", "output_datatype")
"""Attributes that are the number of the first output's element type."""

MAX_DEPTH: Final = 64
"""Producers to ask in turn; a longer chain of values without types is taken for numbers."""

_known: weakref.WeakKeyDictionary[ir.Value, ir.DataType] = weakref.WeakKeyDictionary()


def not_on_device(node: ir.Node) -> ir.DataType | None:
    """Returns an element type of the node's inputs or outputs that a device has not."""
    for value in (*node.inputs, *node.outputs):
        if value is not None:
            dtype = element_type(value)
            if dtype is not None and dtype not in ON_DEVICE:
                return dtype
    return None


def element_type(value: ir.Value, depth: int = MAX_DEPTH) -> ir.DataType | None:
    """Returns a value's element type; that of its items for a sequence; ``None`` if unknown."""
    declared = value.type
    while isinstance(declared, ir.SequenceType | ir.OptionalType):
        declared = declared.elem_type
    if isinstance(declared, ir.TensorType) and declared.dtype != ir.DataType.UNDEFINED:
        return declared.dtype
    if value.const_value is not None:
        return value.const_value.dtype
    if value not in _known and depth:
        found = _produced(value, depth - 1)
        if found is None:
            return None
        _known[value] = found
    return _known.get(value)


def _produced(value: ir.Value, depth: int) -> ir.DataType | None:
    node, position = value.producer(), value.index()
    if node is None or position is None:
        return None
    if graphs.is_control_flow(node):
        return _of_body(node, position, depth)
    if position == 0 and (dtype := _by_attribute(node)) is not None:
        return dtype
    letters = _letters(node.domain, node.op_type, node.version or 1)
    if letters is None:
        return None
    inputs, outputs, single = letters
    letter = outputs[min(position, len(outputs) - 1)] if outputs else ""
    if letter in single:
        return single[letter]
    for number, given in enumerate(node.inputs):
        if given is not None and inputs and inputs[min(number, len(inputs) - 1)] == letter:
            return element_type(given, depth)
    return None


def _by_attribute(node: ir.Node) -> ir.DataType | None:
    for name in TYPED_BY:
        attribute = node.attributes.get(name)
        if attribute is not None and attribute.type == ir.AttributeType.INT and attribute.value:
            return ir.DataType(attribute.as_int())
    if node.op_type in ("Constant", "ConstantOfShape"):
        for name, attribute in node.attributes.items():
            if attribute.type == ir.AttributeType.TENSOR:
                return attribute.as_tensor().dtype
            if name.startswith("value_string"):
                return ir.DataType.STRING
        return ir.DataType.FLOAT if node.op_type == "ConstantOfShape" else None
    return None


def _of_body(node: ir.Node, position: int, depth: int) -> ir.DataType | None:
    skip = 1 if node.op_type == "Loop" else 0
    for _, body in graphs.subgraphs(node):
        if position + skip < len(body.outputs):
            return element_type(body.outputs[position + skip], depth)
    return None


@functools.cache
def _letters(
    domain: str, op_type: str, version: int
) -> tuple[list[str], list[str], dict[str, ir.DataType]] | None:
    """Returns the type variables of an operator's inputs and outputs, and those that are fixed."""
    try:
        schema = onnx.defs.get_schema(op_type, version, domain)
    except onnx.defs.SchemaError:
        return None
    inputs = [_inner(parameter.type_str) for parameter in schema.inputs]
    outputs = [_inner(parameter.type_str) for parameter in schema.outputs]
    allowed = {c.type_param_str: list(c.allowed_type_strs) for c in schema.type_constraints}
    single = {}
    for letter in {*inputs, *outputs}:
        kinds = {_inner(kind) for kind in allowed.get(letter, [letter])}
        if len(kinds) == 1 and (dtype := _named(kinds.pop())) is not None:
            single[letter] = dtype
    return inputs, outputs, single


def _inner(text: str) -> str:
    """Returns the innermost type of ``seq(tensor(string))``: ``string``; a variable as it is."""
    return text.rpartition("(")[2].rstrip(")")


def _named(name: str) -> ir.DataType | None:
    names = {"float": "FLOAT", "double": "DOUBLE"}
    try:
        return ir.DataType[names.get(name, name.upper())]
    except KeyError:
        return None
