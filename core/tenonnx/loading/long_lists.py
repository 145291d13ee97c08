"""Attributes of thousands of numbers, as trees have, read without looking at each of them.

onnx_ir converts one number after the other to what protobuf has made of it already.
"""

from __future__ import annotations

from typing import Any, Final

import onnx
import onnx_ir as ir

OWNER: Final = "ai.onnx.ml"
"""The domain whose models lie in attributes."""

LONG: Final = 1024

FIELDS: Final = {ir.AttributeType.INTS: "ints", ir.AttributeType.FLOATS: "floats"}


class LongList(ir.Attr):
    """An attribute with a tuple of numbers.

    Args:
        name: The attribute's.
        kind: ``INTS`` or ``FLOATS``.
        numbers: They are as they are to be.
    """

    __slots__ = ("_numbers",)

    def __init__(self, name: str, kind: ir.AttributeType, numbers: tuple[Any, ...]) -> None:
        super().__init__(name, kind, ())
        self._numbers = numbers

    @property
    def value(self) -> tuple[Any, ...]:
        """The numbers."""
        return self._numbers


def take_long_lists(proto: onnx.ModelProto) -> list[tuple[int, LongList]]:
    """Clears long lists of the graph's nodes; returns them with their nodes' places."""
    taken = []
    for place, node in enumerate(proto.graph.node):
        for attribute in node.attribute if node.domain == OWNER else ():
            kind = ir.AttributeType(attribute.type)
            field = FIELDS.get(kind)
            if field is not None and len(numbers := getattr(attribute, field)) > LONG:
                taken.append((place, LongList(attribute.name, kind, tuple(numbers))))
                attribute.ClearField(field)
    return taken


def put_back(model: ir.Model, taken: list[tuple[int, LongList]]) -> None:
    """Gives the nodes of a graph, in the order of the file, what was taken from them."""
    nodes = list(model.graph) if taken else []
    for place, attribute in taken:
        nodes[place].attributes[attribute.name] = attribute
