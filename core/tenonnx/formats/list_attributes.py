"""Attributes of onnx_ir whose values are long lists."""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from tenonnx.formats.long_lists import LongList
from tenonnx.graph import nodes


class ListAttribute(ir.Attr):
    """An attribute with a long list.

    Args:
        attribute: It, without the list.
        items: The list.
    """

    __slots__ = ("items",)

    def __init__(self, attribute: ir.Attr, items: LongList) -> None:
        super().__init__(attribute.name, attribute.type, ())
        self.items = items

    @property
    def value(self) -> LongList:
        """The list."""
        return self.items


def put_back(model: ir.Model, lists: Mapping[str, LongList]) -> None:
    """Give attributes of a model their lists, by the documentation that they have instead."""
    owners: list[ir.Node | ir.Function] = [*nodes(model.graph), *model.functions.values()]
    for function in model.functions.values():
        owners += nodes(function.graph)
    for owner in owners:
        for name, attribute in tuple(owner.attributes.data.items()):
            items = lists.get(attribute.doc_string or "")
            if items is not None:
                owner.attributes[name] = ListAttribute(attribute, items)
