"""The protocol's names of element types, beside ONNX's and numpy's."""

from __future__ import annotations

from typing import Any, Final

import ml_dtypes
import numpy as np

DType = np.dtype[Any]

# Types by the protocol's name.
DTYPES: Final[dict[str, DType]] = {
    "BOOL": np.dtype(np.bool_),
    "UINT8": np.dtype(np.uint8),
    "UINT16": np.dtype(np.uint16),
    "UINT32": np.dtype(np.uint32),
    "UINT64": np.dtype(np.uint64),
    "INT8": np.dtype(np.int8),
    "INT16": np.dtype(np.int16),
    "INT32": np.dtype(np.int32),
    "INT64": np.dtype(np.int64),
    "FP16": np.dtype(np.float16),
    "FP32": np.dtype(np.float32),
    "FP64": np.dtype(np.float64),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "BYTES": np.dtype(object),
}

NAMES: Final = {dtype: name for name, dtype in DTYPES.items()}

# The protocol's names by ONNX's; the others (4-bit, float8, complex, sequences) have none.
OF_ONNX: Final = {
    "tensor(bool)": "BOOL",
    "tensor(float)": "FP32",
    "tensor(double)": "FP64",
    "tensor(float16)": "FP16",
    "tensor(bfloat16)": "BF16",
    "tensor(string)": "BYTES",
    **{
        f"tensor({sign}int{bits})": f"{sign.upper()}INT{bits}"
        for sign in ("", "u")
        for bits in (8, 16, 32, 64)
    },
}


def datatype_of(onnx_type: str) -> str | None:
    """Return the protocol's name of an ONNX type; ``None`` if it has none."""
    return OF_ONNX.get(onnx_type)


# The numbers of a configuration's ``DataType``, by the protocol's name.
CONFIG_TYPES: Final = {
    name: number + 1
    for number, name in enumerate(
        (
            *("BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64"),
            *("FP16", "FP32", "FP64", "BYTES", "BF16"),
        )
    )
}
