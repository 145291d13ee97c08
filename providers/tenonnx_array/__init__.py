"""ONNX operator semantics, once, over any array namespace; owns no device."""

from __future__ import annotations

from typing import Final

from tenonnx.operators import OperatorTable
from tenonnx_array.listing import LISTING

TABLE: Final = OperatorTable.listed(__name__, LISTING)
