"""ONNX element types (``TensorProto.DataType``) and the numpy dtypes that hold them at run time.

Types narrower than a byte are ml_dtypes arrays with one element per byte; strings are object
arrays of ``str``. onnx_ir knows all of them; for numpy's own dtypes it is not imported, so that
plans that an earlier process kept open without it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tenonnx.weights.storage import NUMPY_TYPES

if TYPE_CHECKING:
    import onnx_ir as ir

# The element types that numpy has.
NUMPY_DTYPES = tuple(dtype for _, dtype in NUMPY_TYPES.values())

# The number of strings' element type, and the dtype that holds them.
STRING, STRINGS = 8, np.dtype(object)

# ``TensorProto.DataType`` of all element types.
DATA_TYPES = range(1, 29)


@functools.cache
def dtype_of(data_type: int) -> np.dtype[Any]:
    """Return the numpy dtype of a ``TensorProto.DataType``.

    Raises:
        ValueError: No element type has that number.
    """
    if data_type not in DATA_TYPES:
        raise ValueError(f"expected an element type from 1 to {max(DATA_TYPES)}, found {data_type}")
    if data_type in NUMPY_TYPES:
        return NUMPY_TYPES[data_type][1]
    if data_type == STRING:
        return STRINGS
    import onnx_ir as ir

    return ir.DataType(data_type).numpy()


def every_dtype() -> list[np.dtype[Any]]:
    """Return the dtypes of all element types."""
    return [dtype_of(number) for number in DATA_TYPES]


def data_type_of(dtype: Any) -> ir.DataType | None:
    """Return the element type that a dtype holds; ``None`` for other dtypes and other objects."""
    if not isinstance(dtype, np.dtype):
        return None
    import onnx_ir as ir

    try:
        kind = ir.DataType.from_numpy(dtype)
    except TypeError:
        return None
    return kind if kind.numpy() == dtype else None  # it takes structures of bytes for some, too


class Dtypes(dict[Any, bool]):
    """A set of dtypes, which is asked whether it contains one and remembers what was asked for.

    Args:
        own: The characters of numpy's own dtypes that belong to it.
        belongs: Returns whether another element type does.
    """

    __contains__ = dict.__getitem__  # which calls __missing__, at C's pace

    def __init__(self, own: str, belongs: Callable[[ir.DataType], bool]) -> None:
        super().__init__({dtype: dtype.char in own for dtype in (*NUMPY_DTYPES, STRINGS)})
        self._belongs = belongs

    def __missing__(self, dtype: Any) -> bool:
        if (kind := data_type_of(dtype)) is None:
            return False
        found = self[dtype] = self._belongs(kind)
        return found


# Every real floating type. ``dtype.kind`` cannot tell: ml_dtypes' are all of kind V.
FLOATS = Dtypes("efd", lambda kind: kind.is_floating_point())

# Floating types of 16 bits and less, which need a float32 accumulator.
SMALL_FLOATS = Dtypes("e", lambda kind: kind.is_floating_point())

# Every integer type, including those of 2 and 4 bits; not bool.
INTEGERS = Dtypes("bBhHiIlLqQ", lambda kind: kind.is_integer())


@functools.lru_cache(maxsize=256)
def bits_of(dtype: np.dtype[Any]) -> int | None:
    """Return the bits per element in a model file; at run time an element takes at least a byte.

    ``None`` for strings, and for what is no element type.
    """
    if dtype in NUMPY_DTYPES:
        return 8 * dtype.itemsize
    kind = None if dtype == STRINGS else data_type_of(dtype)
    return None if kind is None else kind.bitwidth


def accumulator(dtype: Any) -> np.dtype[Any]:
    """Return the dtype to compute in: float32 for the small floats, else the dtype itself."""
    dtype = np.dtype(dtype)
    return FLOAT32_DTYPE if dtype in SMALL_FLOATS else dtype


FLOAT32_DTYPE = np.dtype(np.float32)
