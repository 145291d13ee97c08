"""Scaler: differences times factors."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from tenonnx.by_name import cacheable
from tenonnx_cpu.buffers import F32, F64
from tenonnx_cpu.capture.capturable import Capturable
from tenonnx_cpu.capture.launch import ahead, fix
from tenonnx_cpu.elementwise.kernels import operations as o
from tenonnx_cpu.elementwise.typed import APPLY, code_of, launch
from tenonnx_cpu.kernel_selection import Call, NDArray, Site, specialize


@specialize("Scaler", domain="ai.onnx.ml")
def specialize_scaler(site: Site, plain: Call) -> Call | None:
    """Take numbers; other types than float32 are computed as float64."""
    APPLY.request()
    given = (
        site.attribute(name, ()) or (absent,) for name, absent in (("scale", 1), ("offset", 0))
    )
    scale, offset = (np.array(numbers, np.float32) for numbers in given)
    narrow, wide = ((fix(scale.astype(dtype)), fix(offset.astype(dtype))) for dtype in (F32, F64))
    return Capturable(functools.partial(_scaled, narrow, wide, site.threads, plain))


@cacheable
def _scaled(
    narrow: tuple[NDArray, NDArray], wide: tuple[NDArray, NDArray], threads: int, plain: Call,
    x: NDArray,
) -> Any:  # fmt: skip
    """Return a launch, or the result."""
    source, columns = code_of(x.dtype), x.shape[-1] if x.ndim else 1
    if source is None or any(each.size not in (1, columns) for each in narrow) or not x.size:
        return plain(x)
    if x.dtype == F32:
        return launch(o.DEQUANTIZE, source, (x, *narrow), F32, threads) or plain(x)
    real: NDArray | None = x
    if x.dtype != F64:
        cast = launch(o.FLOAT64, source, (x,), F64, threads)
        real = None if cast is None else ahead(cast)
    made = None if real is None else launch(o.DEQUANTIZE, o.FLOAT64, (real, *wide), F64, threads)
    made = None if made is None else launch(o.FLOAT32, o.FLOAT64, (ahead(made),), F32, threads)
    return plain(x) if made is None else made
