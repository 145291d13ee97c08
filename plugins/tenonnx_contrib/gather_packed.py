"""GatherPacked: rows of a table in one of ggml's block formats, decoded after they are taken."""

from __future__ import annotations

import numpy as np

from tenonnx import Array, Namespace, OperatorTable
from tenonnx_array.dtypes import dtype_of
from tenonnx_contrib.block_formats import FORMATS, Format, decoded

FLOAT, FLOAT16, BFLOAT16 = 1, 10, 16

table = OperatorTable("com.microsoft")
op = table.op


@op("GatherPacked", host="all")
def gather_packed(
    _xp: Namespace,
    data: Array,
    indices: Array,
    *,
    packed_type: int,
    K: int,
    output_dtype: int = BFLOAT16,
) -> Array:
    """Return rows of K elements in ``output_dtype``; an index out of range is the first row's.

    Raises:
        ValueError: A format or a type that the operator has not, or a table of another width.
    """
    form = format_of(packed_type, K)
    if output_dtype not in (FLOAT, FLOAT16, BFLOAT16):
        raise ValueError(
            f"expected output_dtype {FLOAT}, {FLOAT16} or {BFLOAT16}, found {output_dtype}"
        )
    size = K // form.elements * form.size
    if data.ndim != 2 or data.shape[1] != size:
        raise ValueError(f"expected data of shape (rows, {size}), found {data.shape}")
    if indices.size and not len(data):
        raise ValueError("expected data of at least one row, found none")
    rows = np.where((indices >= 0) & (indices < len(data)), indices, 0).reshape(-1)
    with np.errstate(invalid="ignore", over="ignore"):
        y = decoded(data[rows], form).astype(dtype_of(output_dtype))
    return y.reshape(*indices.shape, K)


def format_of(packed_type: int, elements: int) -> Format:
    """Return the format of rows of so many elements.

    Raises:
        ValueError: There is none of that number, or it has blocks of another size.
    """
    form = FORMATS.get(packed_type)
    if form is None:
        known = ", ".join(f"{number} ({each.name})" for number, each in FORMATS.items())
        raise ValueError(f"expected packed_type to be one of {known}, found {packed_type}")
    if elements <= 0 or elements % form.elements:
        raise ValueError(
            f"expected K to be a positive multiple of {form.elements}, the elements of a block "
            f"of {form.name}, found {elements}"
        )
    return form
