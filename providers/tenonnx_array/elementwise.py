"""Elementwise arithmetic."""

from __future__ import annotations

from tenonnx.operators import OperatorTable

table = OperatorTable()
table.rows({"Add": "add", "Sub": "subtract", "Mul": "multiply"}, since=7)
table.rows({"Relu": lambda xp, x: xp.maximum(x, 0)})
