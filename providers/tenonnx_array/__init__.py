"""ONNX operator semantics, once, over any array namespace; owns no device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tenonnx.operators import OperatorTable

    TABLE: OperatorTable


def __getattr__(name: str) -> Any:
    if name != "TABLE":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from tenonnx.operators import OperatorTable
    from tenonnx_array.listing import LISTING

    made = OperatorTable.listed(__name__, LISTING)
    return globals().setdefault(name, made)  # another thread may have made one meanwhile
