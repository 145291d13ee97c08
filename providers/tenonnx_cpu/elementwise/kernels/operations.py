"""Codes of operations on elements of any type, and of the types."""

from __future__ import annotations

# Types of elements; as an operation, each is the cast to it.
(BOOL, INT8, UINT8, INT16, UINT16, INT32, UINT32, INT64, UINT64, FLOAT16, BFLOAT16, FLOAT32,
 FLOAT64) = range(13)  # fmt: skip

INTEGERS = (INT8, UINT8, INT16, UINT16, INT32, UINT32, INT64, UINT64)
FLOAT_CODES = (FLOAT16, BFLOAT16, FLOAT32, FLOAT64)
NUMBER_CODES = (*INTEGERS, *FLOAT_CODES)

# Bytes of an element, by type.
SIZES = (1, 1, 1, 2, 2, 4, 4, 8, 8, 2, 2, 4, 8)

# Operations on one operand.
NEG, ABS, SIGN, NOT, FLOOR, CEIL, ROUND, SQRT, RECIPROCAL, RELU, IS_NAN, IS_INF = range(16, 28)

# Operations on two operands.
(ADD, SUB, MUL, DIV, MAX, MIN, MOD, FMOD, AND, OR, XOR, LEFT, RIGHT, EQUAL, GREATER, LESS,
 GREATER_OR_EQUAL, LESS_OR_EQUAL) = range(32, 50)  # fmt: skip

# Operations on three operands. The type of `WHERE` is that of the second and third; that of
# `QUANTIZE` and `DEQUANTIZE` is the integers', and the zero points'. Their second operand is a
# scale, which is float32 beside integers.
WHERE, CLIP, AFFINE, QUANTIZE, DEQUANTIZE = range(60, 65)

WHOLE = (BOOL, *INTEGERS)
HALVES = (FLOAT16, BFLOAT16)

# The element types that an operation takes; a cast takes all.
TAKES = {
    **dict.fromkeys((NEG, ABS, RELU, ADD, SUB, MUL, DIV, MAX, MIN, CLIP), NUMBER_CODES),
    **dict.fromkeys((SIGN, GREATER, LESS, GREATER_OR_EQUAL, LESS_OR_EQUAL), NUMBER_CODES),
    **dict.fromkeys((NOT, AND, OR, XOR), WHOLE),
    **dict.fromkeys((FLOOR, CEIL, ROUND, SQRT, RECIPROCAL, IS_NAN, IS_INF), FLOAT_CODES),
    **dict.fromkeys((MOD, FMOD, LEFT, RIGHT), INTEGERS),
    EQUAL: (BOOL, *NUMBER_CODES),
    WHERE: (INT8, INT16, INT32, INT64),
    QUANTIZE: (INT8, UINT8, INT16, UINT16),
    DEQUANTIZE: (INT8, UINT8, INT16, UINT16, INT32, FLOAT32, FLOAT64),
    AFFINE: (FLOAT32, FLOAT64),
}

# Operations but the cast whose results are bool, whatever their operands are.
TO_BOOL = frozenset({IS_NAN, IS_INF, EQUAL, GREATER, LESS, GREATER_OR_EQUAL, LESS_OR_EQUAL})

# Axes at most that are looped over beside the last one.
MAX_OUTER_AXES = 6

# Numbers of a launch: nine, the steps of a row, an axis' length and steps for each axis around it,
# and how many threads are of use.
APPLY_NUMBERS = 9 + 4 + 5 * MAX_OUTER_AXES + 1

# The names of the kernel's first numbers. A row of `width` elements is cut into `pieces` of
# `piece`; there are `units` of them in all, and `grain` are one of `tasks`. Steps are bytes between
# adjacent elements of a row. Then come the lengths of `rank` outer axes, the last one first, and
# for each axis the bytes between rows of each operand and of the result.
FIELDS = (
    "operation", "element", "rank", "width", "piece", "pieces", "units", "grain", "tasks",
    "a_step", "b_step", "c_step", "y_step",
)  # fmt: skip

SIGNED = {BOOL: INT8, UINT8: INT8, UINT16: INT16, UINT32: INT32, UINT64: INT64}

# Operations that are the same on integers with a sign and without.
SIGNLESS = frozenset({NEG, ADD, SUB, MUL, AND, OR, XOR, LEFT, EQUAL})


def variant(operation: int, element: int) -> tuple[int, int]:
    """Return the operation and the type by which one on another is computed, bit for bit."""
    if operation in SIGNLESS:
        return operation, SIGNED.get(element, element)
    if operation >= NEG or operation == BOOL:
        return operation, element
    if element not in FLOAT_CODES or SIZES[operation] < 4:
        operation = SIGNED.get(operation, operation)  # a cast's target
    if operation in INTEGERS and element not in FLOAT_CODES and SIZES[operation] <= SIZES[element]:
        return operation, SIGNED.get(element, element)
    return operation, UINT8 if element == BOOL else element


def is_known(operation: int, element: int) -> bool:
    """Return whether there is such an operation on a type."""
    return operation < NEG or element in TAKES[operation]
