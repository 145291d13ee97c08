"""Comparisons, logic, bits, and the choice between two tensors."""

from __future__ import annotations

from tenonnx.operators import Array, Namespace, OperatorTable
from tenonnx_array.dtypes import bits_of, dtype_of
from tenonnx_array.legacy import limited_broadcast

table = OperatorTable()
op = table.op

BINARY_FUNCTIONS = {
    "And": "logical_and",
    "Equal": "equal",
    "Greater": "greater",
    "Less": "less",
    "Or": "logical_or",
    "Xor": "logical_xor",
}
table.rows(
    {name: limited_broadcast(function) for name, function in BINARY_FUNCTIONS.items()}, since=1
)
table.rows(BINARY_FUNCTIONS, since=7)
table.rows({"Not": "logical_not"}, since=1)
table.rows({"Where": "where"}, since=9)
table.rows({"GreaterOrEqual": "greater_equal", "LessOrEqual": "less_equal"}, since=12)
table.rows(
    {
        "BitwiseAnd": "bitwise_and",
        "BitwiseNot": "bitwise_not",
        "BitwiseOr": "bitwise_or",
        "BitwiseXor": "bitwise_xor",
    },
    since=18,
)


@op("BitShift", since=11)
def bit_shift(xp: Namespace, x: Array, y: Array, *, direction: str) -> Array:
    """Shift by ``y`` bits, sign-extending to the right.

    A shift that is negative or not below the width leaves the sign alone: -1 to the right of a
    negative number, else 0.
    """
    if direction not in ("LEFT", "RIGHT"):
        raise ValueError(f"expected direction to be 'LEFT' or 'RIGHT', found {direction!r}")
    inside = (y >= 0) & (y < 8 * x.dtype.itemsize)
    shift = xp.where(inside, y, 0)
    if direction == "LEFT":
        return xp.where(inside, xp.left_shift(x, shift), 0)
    sign = -(x < 0).astype(x.dtype) if x.dtype.kind == "i" else 0
    return xp.where(inside, xp.right_shift(x, shift), sign)


@op("BitCast", since=26)
def bit_cast(xp: Namespace, x: Array, *, to: int) -> Array:  # noqa: ARG001 - a view needs no xp
    """Return a view of the same bits as another dtype of the same width."""
    dtype = dtype_of(to)
    if dtype.kind == "O" or bits_of(x.dtype) != bits_of(dtype):
        raise ValueError(
            f"expected a dtype of {bits_of(x.dtype)} bits like {x.dtype}'s, found {dtype}"
        )
    return x.view(dtype)
