"""Modules whose attributes are those of the module that they stand for, found when asked for."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection
from typing import Any


def attributes_of(
    place: str, name: str, own: Collection[str] = (), page: str | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` of a module that stands for another (PEP 562).

    Args:
        place: The module that has the attributes.
        name: The name of the module that they are read from.
        own: Names that this module itself has.
        page: Where the names that are missing are explained.
    """

    def look_up(attribute: str) -> Any:
        try:
            return getattr(importlib.import_module(place), attribute)
        except AttributeError:
            raise AttributeError(
                f"{name} is {place} here, which has no {attribute!r}"
                + (f": see {page}" if page is not None else "")
            ) from None

    def names() -> list[str]:
        return sorted({*own, *dir(importlib.import_module(place))})

    return look_up, names
