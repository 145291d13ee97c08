"""Codes of elementwise operators: what chains are made of, and activations in other kernels."""

from __future__ import annotations

COPY, RELU, NEG, ABS, SQRT, RECIPROCAL, FLOOR, CEIL, SQUARE, CUBE, SOFTSIGN = range(11)
"""Operators of one operand and a few instructions."""

EXP, ERF, SIGMOID, TANH, GELU, GELU_TANH, SILU = range(11, 18)
"""Those that need polynomials."""

LEAKY_RELU, HARD_SIGMOID, HARD_SWISH, CLIP, THRESHOLDED_RELU = range(18, 23)
"""Those with parameters."""

ADD, SUB, MUL, DIV, MAX, MIN, PRELU = range(23, 30)
"""Operators of two operands."""

NONE = COPY
"""The activation that changes nothing."""

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
