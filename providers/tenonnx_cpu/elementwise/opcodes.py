"""The elementwise operators that chains are made of: codes of the block interpreter."""

from __future__ import annotations

UNARY = (
    "Relu", "Neg", "Abs", "Sqrt", "Reciprocal", "Floor", "Ceil", "Square", "Cube", "Copy",
    "Softsign",
    "Exp", "Erf", "Sigmoid", "Tanh", "Gelu", "GeluTanh", "Silu",
    "LeakyRelu", "HardSigmoid", "HardSwish", "Clip", "ThresholdedRelu",
)  # fmt: skip
"""Operators of one operand: cheap ones, those that need polynomials, those with parameters."""

BINARY = ("Add", "Sub", "Mul", "Div", "Max", "Min", "PRelu")
"""Operators of two operands."""

CODES = {name: code for code, name in enumerate((*UNARY, *BINARY))}

INPUTS = 6
"""Arrays that a program reads at most."""

BLOCK = 1024
"""Elements that a program's instructions work on at a time: several blocks fit the first cache."""

REGISTERS = 12
"""Blocks that a program may hold at a time: values on their way, and numbers as blocks."""

AXES = 4
"""Axes that a program loops over at most, the last one among them."""

MEMORY = BLOCK * REGISTERS
"""Floats that a worker needs."""
