"""ONNX element types (``TensorProto.DataType``) and the numpy dtypes that hold them at run time.

Types narrower than a byte are ml_dtypes arrays with one element per byte; strings are object
arrays of ``str``.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

DTYPES: dict[int, np.dtype[Any]] = {
    1: np.dtype(np.float32),
    2: np.dtype(np.uint8),
    3: np.dtype(np.int8),
    4: np.dtype(np.uint16),
    5: np.dtype(np.int16),
    6: np.dtype(np.int32),
    7: np.dtype(np.int64),
    8: np.dtype(object),
    9: np.dtype(np.bool_),
    10: np.dtype(np.float16),
    11: np.dtype(np.float64),
    12: np.dtype(np.uint32),
    13: np.dtype(np.uint64),
    14: np.dtype(np.complex64),
    15: np.dtype(np.complex128),
    16: np.dtype(ml_dtypes.bfloat16),
    17: np.dtype(ml_dtypes.float8_e4m3fn),
    18: np.dtype(ml_dtypes.float8_e4m3fnuz),
    19: np.dtype(ml_dtypes.float8_e5m2),
    20: np.dtype(ml_dtypes.float8_e5m2fnuz),
    21: np.dtype(ml_dtypes.uint4),
    22: np.dtype(ml_dtypes.int4),
    23: np.dtype(ml_dtypes.float4_e2m1fn),
    24: np.dtype(ml_dtypes.float8_e8m0fnu),
    25: np.dtype(ml_dtypes.uint2),
    26: np.dtype(ml_dtypes.int2),
    27: np.dtype(ml_dtypes.float6_e2m3fn),
    28: np.dtype(ml_dtypes.float6_e3m2fn),
}
"""``TensorProto.DataType`` to numpy dtype."""

DATA_TYPES: dict[np.dtype[Any], int] = {dtype: number for number, dtype in DTYPES.items()}
"""The reverse of ``DTYPES``."""

BFLOAT16 = DTYPES[16]

FLOATS = frozenset(DTYPES[n] for n in (1, 10, 11, 16, 17, 18, 19, 20, 23, 24, 27, 28))
"""Every real floating type. ``dtype.kind`` cannot tell: ml_dtypes' are all of kind V."""

SMALL_FLOATS = FLOATS - {DTYPES[1], DTYPES[11]}
"""Floating types of 16 bits and less: what needs a float32 accumulator."""

INTEGERS = frozenset(DTYPES[n] for n in (2, 3, 4, 5, 6, 7, 12, 13, 21, 22, 25, 26))
"""Every integer type, also int4 and its kin; not bool."""

BITS: dict[np.dtype[Any], int] = {dtype: 8 * dtype.itemsize for dtype in DATA_TYPES} | {
    DTYPES[21]: 4,
    DTYPES[22]: 4,
    DTYPES[23]: 4,
    DTYPES[25]: 2,
    DTYPES[26]: 2,
    DTYPES[27]: 6,
    DTYPES[28]: 6,
}
"""Bits per element in a model file; at run time an element takes at least a byte."""


def dtype_of(data_type: int) -> np.dtype[Any]:
    """Return the numpy dtype of a ``TensorProto.DataType``.

    Raises:
        ValueError: No element type has that number.
    """
    if data_type not in DTYPES:
        raise ValueError(f"expected an element type from 1 to {max(DTYPES)}, found {data_type}")
    return DTYPES[data_type]


def accumulator(dtype: Any) -> np.dtype[Any]:
    """Return the dtype to compute in: float32 for the small floats, else the dtype itself."""
    dtype = np.dtype(dtype)
    return DTYPES[1] if dtype in SMALL_FLOATS else dtype
