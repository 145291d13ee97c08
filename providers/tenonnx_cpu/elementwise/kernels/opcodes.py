"""Codes of elementwise operators, for chains and for activations in other kernels."""

from __future__ import annotations

COPY, NEG, ABS, SQRT, RECIPROCAL, FLOOR, CEIL, SQUARE, CUBE, EXP, ERF = range(11)
"""Operators of one operand."""

RELU, GELU, GELU_TANH, SIGMOID, SILU, TANH = range(11, 17)
"""Activations."""

CLIP, LEAKY_RELU, HARD_SIGMOID, HARD_SWISH, SOFTSIGN, THRESHOLDED_RELU = range(17, 23)
"""Activations, most of them with parameters."""

ADD, SUB, MUL, DIV, MAX, MIN, PRELU = range(23, 30)
"""Operators of two operands."""

NONE = COPY
"""The activation that changes nothing."""

# Arrays that a program reads at most.
MAX_INPUTS = 6

# Elements that a program's instructions work on at a time: several blocks fit the first cache.
BLOCK_ELEMENTS = 1024

REGISTERS = 12
"""Blocks that a program may hold at a time: values on their way, and numbers as blocks."""

# Axes that a program loops over at most, the last one among them.
MAX_AXES = 4

MEMORY = BLOCK_ELEMENTS * (REGISTERS + 1)
"""Floats that a worker needs: the last block is for results that are rounded to 16 bits."""
