"""Operators of which numpy does the work of small arrays in less time than it takes to ask."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx_array.dtypes import DTYPES
from tenonnx_cpu.specialise import Call, NDArray, Site, specialise

NUMBERS = "biuf"
"""Kinds of dtypes between which numpy converts as ONNX says."""


def _is_number(dtype: np.dtype[Any]) -> bool:
    """Says whether a dtype is one of numpy's own; narrow floats are of the same kinds."""
    return dtype.kind in NUMBERS and dtype.isbuiltin == 1


@specialise("Cast")
def specialise_cast(site: Site, plain: Call) -> Call | None:
    """Converts numbers to numbers."""
    to = site.attribute("to", None)
    dtype = DTYPES.get(to) if isinstance(to, int) else None
    if dtype is None or dtype.kind not in NUMBERS or dtype.isbuiltin != 1:  # float8 saturates
        return None

    # Of numpy's scalars astype makes arrays first; their types refuse NaN as an integer.
    scalar = dtype.type if dtype.kind in "bf" else None

    def convert(x: Any) -> Any:
        if scalar is not None and isinstance(x, np.generic):
            return scalar(x)
        return x.astype(dtype, copy=False)

    def call(x: Any) -> Any:
        return plain(x) if isinstance(x, str) or not _is_number(x.dtype) else convert(x)

    told = site.dtype(0)
    return convert if told is not None and _is_number(told) else call


@specialise("ArgMax", "ArgMin")
def specialise_place(site: Site, plain: Call) -> Call | None:
    """Finds the first one."""
    if site.attribute("select_last_index", 0):
        return None
    axis, keeps = site.attribute("axis", 0), bool(site.attribute("keepdims", 1))
    find = np.ndarray.argmax if site.node.op_type == "ArgMax" else np.ndarray.argmin

    def call(x: NDArray) -> Any:
        if type(x) is not np.ndarray or x.dtype.kind not in NUMBERS:
            return plain(x)
        return find(x, axis, keepdims=keeps)

    return call


def pick(site: Site, plain: Call) -> Call:
    """Returns Gather for places that differ from run to run."""
    axis = site.attribute("axis", 0)

    def call(data: NDArray, places: NDArray) -> Any:
        # numpy copies the whole of what is not contiguous or aligned first.
        if type(data) is np.ndarray and data.flags.c_contiguous and np.ndim(places):
            try:
                return data.take(places, axis)
            except IndexError:
                pass
        return plain(data, places)

    return call
