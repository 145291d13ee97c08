"""The element types of a graph's values, as far as its schemas tell without shapes.

A device has no strings and no elements narrower than a byte, so a provider has to know what a node
takes before it runs. Models rarely say it of every value.
"""

from __future__ import annotations

import weakref
from typing import Final

import onnx_ir as ir

from tenonnx.graph.dtypes import type_source

# The element types that cupy has.
ON_DEVICE: Final = frozenset(
    ir.DataType[name]
    for name in (
        *("BOOL", "INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64"),
        *("FLOAT16", "BFLOAT16", "FLOAT", "DOUBLE", "COMPLEX64", "COMPLEX128"),
    )
)

# Producers to ask in turn; a longer chain of values without types is taken for numbers.
MAX_PRODUCERS: Final = 64

_known: weakref.WeakKeyDictionary[ir.Value, ir.DataType] = weakref.WeakKeyDictionary()


def not_on_device(node: ir.Node) -> ir.DataType | None:
    """Return an element type of the node's inputs or outputs that a device has not."""
    for value in (*node.inputs, *node.outputs):
        if value is not None:
            dtype = element_type(value)
            if dtype is not None and dtype not in ON_DEVICE:
                return dtype
    return None


def element_type(value: ir.Value) -> ir.DataType | None:
    """Return a value's element type; that of its items for a sequence; ``None`` if unknown."""
    asked: list[ir.Value] = []
    found: ir.Value | ir.DataType | None = value
    while isinstance(found, ir.Value) and len(asked) < MAX_PRODUCERS:
        asked.append(found)
        found = _known.get(found) or type_source(found)
    if not isinstance(found, ir.DataType):
        return None
    _known.update(dict.fromkeys(asked, found))
    return found
