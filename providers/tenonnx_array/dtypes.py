"""ONNX element types (``TensorProto.DataType``) and the numpy dtypes that hold them at run time.

Types narrower than a byte are ml_dtypes arrays with one element per byte; strings are object
arrays of ``str``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx.lazy_modules import onnx_ir as ir

_KINDS = [ir.DataType(number) for number in range(1, 29)]

DTYPES: dict[int, np.dtype[Any]] = {int(kind): kind.numpy() for kind in _KINDS}
"""``TensorProto.DataType`` to numpy dtype."""

DATA_TYPES: dict[np.dtype[Any], int] = {dtype: number for number, dtype in DTYPES.items()}
"""The reverse of ``DTYPES``."""

BFLOAT16 = DTYPES[16]

FLOATS = frozenset(kind.numpy() for kind in _KINDS if kind.is_floating_point())
"""Every real floating type. ``dtype.kind`` cannot tell: ml_dtypes' are all of kind V."""

SMALL_FLOATS = FLOATS - {DTYPES[1], DTYPES[11]}
"""Floating types of 16 bits and less, which need a float32 accumulator."""

INTEGERS = frozenset(kind.numpy() for kind in _KINDS if kind.is_integer())
"""Every integer type, including those of 2 and 4 bits; not bool."""

BITS = {kind.numpy(): kind.bitwidth for kind in _KINDS if kind != ir.DataType.STRING}
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
