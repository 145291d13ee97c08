"""Numbers by name: what a kernel is told in an array, seen as a named tuple."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

from numba import types
from numba.extending import intrinsic


def named(name: str, fields: tuple[str, ...]) -> Any:
    """Returns what kernels call with an array of int64 to have its numbers under these names.

    Args:
        name: Of the named tuple; numba tells tuples of as many fields apart by it.
        fields: What the array's numbers are called, from the first one on.
    """
    made = namedtuple(name, fields)  # type: ignore[misc] # the fields are what a layout says
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
