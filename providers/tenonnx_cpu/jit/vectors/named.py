"""Numbers by name: an array of a kernel's parameters as a named tuple."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

from numba import types
from numba.extending import intrinsic


def tuple_of(name: str, fields: tuple[str, ...]) -> Any:
    """Return a class of named tuples, which kernels make of numbers by keywords.

    Args:
        name: The class's; numba tells tuples of equal length apart by it.
        fields: The names of the numbers.
    """
    return namedtuple(name, fields)


def named(name: str, fields: tuple[str, ...]) -> Any:
    """Return a function for kernels: from an array of int64 to a tuple with these names.

    Args:
        name: The named tuple's name; numba tells tuples of equal length apart by it.
        fields: The names of the array's numbers, from the first one on.
    """
    made = tuple_of(name, fields)
    kind = types.NamedUniTuple(types.intp, len(fields), made)

    @intrinsic
    def read(typing_context: Any, numbers: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            array = context.make_array(signature.args[0])(context, builder, values[0])
            places = (context.get_constant(types.intp, n) for n in range(len(fields)))
            found = [builder.load(builder.gep(array.data, [place])) for place in places]
            return context.make_tuple(builder, kind, found)

        return kind(numbers), generate

    return read
