"""Codes of elementwise operators, for chains and for activations in other kernels."""

from __future__ import annotations

# Operators of one operand.
COPY, NEG, ABS, SQRT, RECIPROCAL, FLOOR, CEIL, SQUARE, CUBE, EXP, ERF = range(11)

# Activations.
RELU, GELU, GELU_TANH, SIGMOID, SILU, TANH = range(11, 17)

# Activations, most of them with parameters.
CLIP, LEAKY_RELU, HARD_SIGMOID, HARD_SWISH, SOFTSIGN, THRESHOLDED_RELU = range(17, 23)

# Operators of two operands.
ADD, SUB, MUL, DIV, MAX, MIN, PRELU = range(23, 30)

# The activation that changes nothing.
NONE = COPY

# Arrays that a program reads at most.
MAX_INPUTS = 6

# Elements that a program's instructions work on at a time: several blocks fit the first cache.
BLOCK_ELEMENTS = 1024

# Blocks that a program may hold at a time: values on their way, and numbers as blocks.
REGISTERS = 12

# Axes that a program loops over at most, the last one among them.
MAX_AXES = 4

# Shorter rows cost more to tell apart than to compute, if there are many.
MIN_ROW_ELEMENTS = 48

# Where the types of elements begin among a program's numbers, behind ``MAX_AXES`` lengths, how many
# numbers and arrays there are, and how much of the last axis is computed at a time.
TYPES_PLACE = MAX_AXES + 3

# All of these, the types of the arrays and of the result, the rows of a task and the threads.
PROGRAM_NUMBERS = TYPES_PLACE + MAX_INPUTS + 3

# Floats that a worker needs: the last block is for results that are rounded to 16 bits.
MEMORY = BLOCK_ELEMENTS * (REGISTERS + 1)
